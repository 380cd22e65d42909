#!/usr/bin/env bash
# Brings bpf/ to the libbpf release named here, as Debian packages it, cut to what the programs use. vmlinux.h is written
# by hand and not touched: add a field there when a program reads one more.
set -euo pipefail
cd "$(dirname "$0")"

version=1:1.1.2-0+deb12u1
helpers='map_lookup_elem map_update_elem probe_read_kernel probe_read_kernel_str probe_read_user probe_read_user_str
    ktime_get_boot_ns get_current_task_btf task_pt_regs get_func_ret map_delete_elem current_task_under_cgroup ringbuf_output ringbuf_query loop find_vma
    trace_printk trace_vprintk probe_read'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq "libbpf-dev=$version" && dpkg -x libbpf-dev_*.deb .)
from=$work/usr/include/bpf

mkdir -p bpf
cp "$from/bpf_helpers.h" "$from/bpf_core_read.h" bpf/
# Every helper is a comment and one line; the forward declarations in front stay.
{
    echo '/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */'
    echo "/* From libbpf $version by update.sh: only the helpers that are used. */"
    awk -v list="$helpers" '
        BEGIN { n = split(list, names); for (i = 1; i <= n; i++) want["bpf_" names[i]] = 1 }
        /^\/\*$/ { started = 1; text = "" }
        !started { print; next }
        { text = text $0 "\n" }
        /^static / { match($0, /bpf_[a-z0-9_]+\)/); if (substr($0, RSTART, RLENGTH - 1) in want) printf "%s\n", text }
    ' "$from/bpf_helper_defs.h"
} >bpf/bpf_helper_defs.h
