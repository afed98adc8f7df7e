"""The extensions of the Python package, built by CMake. See pyproject.toml."""
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class ByCMake(build_ext):
    def build_extension(self, ext):
        tree, to = pathlib.Path(__file__).resolve().parent, pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        build = pathlib.Path(self.build_temp).resolve()
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={sys.executable}", f"-DPYTHON_EXECUTABLE={sys.executable}"]
        subprocess.run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", *options], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "ringside_python"], check=True)
        to.parent.mkdir(parents=True, exist_ok=True)
        built, = (build / "python" / "ringside").glob(ext.name.rpartition(".")[2] + "*.so")
        self.copy_file(built, to)


setup(ext_modules=[Extension("ringside._ringside", []), Extension("ringside._writer", [])], cmdclass={"build_ext": ByCMake})
