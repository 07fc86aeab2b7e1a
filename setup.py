"""Builds the one module in C; where there is no compiler, Python does the same, and slower."""

from setuptools import Extension, setup

FLAT = Extension(
    "infobus.objects._flat",
    sources=["src/infobus/objects/_flat.c"],
    depends=["src/infobus/objects/_values.h"],
    optional=True,
)

setup(ext_modules=[FLAT])
