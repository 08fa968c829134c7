"""Stand-ins for NVIDIA's libraries, compiled from a few lines of C: one logs who starts CUDA, one lists GPUs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

LOG = "STUB_DRIVER_LOG"
"""The variable that names the log: a line per start of CUDA, with the process and its CUDA_VISIBLE_DEVICES."""

CUDA = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cuInit(unsigned int flags) {
    FILE *log = fopen(getenv("STUB_DRIVER_LOG"), "a");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    fprintf(log, "%d %s\\n", getpid(), visible ? visible : "all");
    fclose(log);
    return 100; /* no device */
}
int cuDriverGetVersion(int *version) { *version = 99000; return 0; }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long flags, void *status) {
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    *found = self ? dlsym(self, name) : 0;
    return *found ? 0 : 500;
}
int cuGetProcAddress(const char *name, void **found, int version, unsigned long flags) {
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}
int cuGetExportTable(const void **table, const void *id) { return 500; }
"""

MANAGEMENT = """
#include <stdio.h>
#include <stdlib.h>

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **handle) { *handle = (void *)(size_t)(number + 1); return 0; }
int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    snprintf(name, length, "NVIDIA Managed %zu", (size_t)handle - 1);
    return 0;
}
"""


def compiled(source: str, library: Path) -> Path:
    """The library of that source. Skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library.parent.mkdir(parents=True, exist_ok=True)
    code = library.parent / "source.c"
    code.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, code, "-ldl"], check=True)
    return library
