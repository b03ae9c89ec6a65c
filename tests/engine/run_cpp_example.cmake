# Does what a reader of examples/cpp does, in a folder of its own.
set(prefix ${BUILD}/example/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD}/example/build -G Ninja
  -DCMAKE_PREFIX_PATH=${prefix} -DPython3_EXECUTABLE=${PYTHON} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD}/example/build COMMAND_ERROR_IS_FATAL ANY)
foreach(example infer train)
  execute_process(COMMAND ${BUILD}/example/build/${example} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
