# Writes the commit that a program was built from into a header; touches the file only if it changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define KEYSIEVE_COMMIT \"${commit}\"\n")
