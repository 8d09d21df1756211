# Sourced: python_of MINOR prints CPython 3.MINOR of the path or of pyenv, and fails without one.
python_of() {
    local python
    # pyenv's shims stand in the path for versions that are not chosen: each is asked.
    for python in "python3.$1" "$HOME"/.pyenv/versions/3."$1".*/bin/python3; do
        if "$python" -c "import sys; sys.exit(sys.version_info[:2] != (3, $1))" 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    return 1
}
