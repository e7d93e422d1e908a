# Parses a file of C++ again and again, as a server for an editor does; writes a line each time.
# Its argument is libclang.
import sys

import clang.cindex

clang.cindex.Config.set_library_file(sys.argv[1])
index = clang.cindex.Index.create()
text = "#include <map>\n#include <string>\nstd::map<int, std::string> names;\n"
while True:
    unit = index.parse("names.cc", args=["-std=c++17"], unsaved_files=[("names.cc", text)])
    assert not any(one.severity >= one.Error for one in unit.diagnostics)
    print(flush=True)
