// Package bpf holds the tracepoint programs, compiled. Package agent loads them and decodes what they write.
//
// The C is GPL-2.0-only, because the kernel lets only such programs call the helpers that they need; this file and the
// generated Go around the objects are as free as the rest.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -tags linux -target amd64,arm64 -output-stem hooks Hooks hooks.bpf.c -- -I../headers -O2 -g -mcpu=v3 -Wall -Werror
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -tags linux -target amd64,arm64 -type event -type life -type kind -type text -type record_flag -type call_flag -type class -output-stem trace Trace trace.bpf.c -- -I../headers -O2 -g -mcpu=v3 -Wall -Werror
