# packages.sh: headers of NVIDIA's libraries from their Python packages, kept in the user's cache. To be sourced, with
# $work an empty folder.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ddpc-headers

# package NAME==VERSION: prints the folder of that package's headers (and of nvcc's bitcode, under nvvm); status 1 if the
# package cannot be downloaded, with pip's reason in $work/pip.
package() {
    local kept=$cache/$1
    if [[ ! -d $kept ]]; then
        rm -rf "$work/wheel" "$work/headers"
        python3 -m pip download -q --no-deps --only-binary :all: -d "$work/wheel" "$1" >"$work/pip" 2>&1 &&
            python3 - "$work"/wheel/*.whl "$work/headers" >>"$work/pip" 2>&1 <<'END' &&
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        _, mark, path = name.partition("/include/")
        if not mark:
            _, mark, path = name.partition("/nvvm/libdevice/")
            path = "nvvm/libdevice/" + path
        if mark and not path.endswith("/") and ".." not in path:
            os.makedirs(os.path.dirname(os.path.join(sys.argv[2], path)), exist_ok=True)
            with open(os.path.join(sys.argv[2], path), "wb") as file:
                file.write(wheel.read(name))
END
            mkdir -p "$cache" && mv "$work/headers" "$kept" || return
    fi
    echo "$kept"
}
