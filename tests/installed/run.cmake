# Does what a reader of a project that uses Nimble does, in folders of its own.
set(prefix ${FOLDER}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --fresh -S ${SOURCE} -B ${FOLDER}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${prefix} ${OPTIONS} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER}/build COMMAND_ERROR_IS_FATAL ANY)
foreach(program IN LISTS PROGRAMS)
  execute_process(COMMAND ${FOLDER}/build/${program} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
