int interpose_rpath_library = 1;
