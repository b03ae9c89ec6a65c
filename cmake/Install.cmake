# What `cmake --install` and the wheel hold. In the wheel the prefix is the package itself: nimble/include, nimble/lib.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Nimble)

set_target_properties(nimble_core PROPERTIES EXPORT_NAME core)
install(TARGETS nimble_core EXPORT NimbleCore)
install(EXPORT NimbleCore NAMESPACE Nimble:: DESTINATION ${package_folder})
install(DIRECTORY nimble/core DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nimble FILES_MATCHING PATTERN "*.h")
target_include_directories(nimble_core INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

if(TARGET nimble)
  install(TARGETS nimble EXPORT NimbleEngine)
  install(EXPORT NimbleEngine NAMESPACE Nimble:: DESTINATION ${package_folder})
  install(DIRECTORY nimble/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nimble FILES_MATCHING PATTERN "*.h")
  target_include_directories(nimble INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(FILES cmake/Torch.cmake DESTINATION ${package_folder})
endif()

if(TARGET nimble-plan)
  install(TARGETS nimble-plan)
endif()

configure_package_config_file(cmake/NimbleConfig.cmake.in NimbleConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(NimbleConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/NimbleConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/NimbleConfigVersion.cmake
        DESTINATION ${package_folder})
