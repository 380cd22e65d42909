package bait

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// leave is exit_group(PayloadStatus) for amd64: mov edi, 219; mov eax, 231; syscall.
var leave = []byte{0xbf, probe.PayloadStatus, 0, 0, 0, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05}

// payloads are what must not be mapped or started, made where the probe can read them. They are written here and not
// compiled: a user's host need not have a compiler.
func (p *Planted) payloads() error {
	if runtime.GOARCH != "amd64" {
		return nil // what takes them is impossible then
	}
	dir := filepath.Join(p.config.Workspace, "payload")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for payloads: %w", err)
	}
	p.closing(func() error { return os.RemoveAll(dir) })
	p.Bait.PayloadSO, p.Bait.PayloadProgram = filepath.Join(dir, "payload.so"), filepath.Join(dir, "payload")
	errs := []error{
		os.WriteFile(p.Bait.PayloadSO, image(""), 0o755),
		os.WriteFile(p.Bait.PayloadProgram, image("/lib64/ld-linux-x86-64.so.2"), 0o755),
	}
	for _, path := range []string{dir, p.Bait.PayloadSO, p.Bait.PayloadProgram} {
		errs = append(errs, os.Lchown(path, p.config.UID, p.config.GID))
	}
	return errors.Join(errs...)
}

// image is an ELF file for the dynamic loader: a shared object whose initialiser leaves, and that the loader takes for
// an audit module (la_version, rtld-audit(7)); with an interpreter, a program too. The first page holds everything that
// is read and executed, the second the dynamic section, which loaders write.
func image(interp string) []byte {
	const page, header, entry = 0x1000, 64, 56
	var body bytes.Buffer
	headers := 4
	if interp != "" {
		headers += 2
	}
	at := func(b []byte) uint64 {
		for (header+headers*entry+body.Len())%16 != 0 {
			body.WriteByte(0)
		}
		offset := uint64(header + headers*entry + body.Len())
		body.Write(b)
		return offset
	}
	text := at(leave)
	names := at([]byte("\x00la_version\x00"))
	// Null symbol, and la_version: name 1, global function of section 1, at text.
	symbols := at(little(make([]byte, 24), uint32(1), uint8(0x12), uint8(0), uint16(1), text, uint64(len(leave))))
	hash := at(little(uint32(1), uint32(2), uint32(1), uint32(0), uint32(0))) // one bucket, with la_version in it
	name := at([]byte(interp + "\x00"))

	const dtHash, dtStrtab, dtSymtab, dtStrsz, dtSyment, dtInit = 4, 5, 6, 10, 11, 12
	dynamic := little([]uint64{dtHash, hash, dtStrtab, names, dtSymtab, symbols, dtStrsz, 12, dtSyment, 24, dtInit, text, 0, 0})
	size := uint64(header + headers*entry + body.Len())
	const load, dyn, inter, phdr, stack = 1, 2, 3, 6, 0x6474e551
	const x, w, r = 1, 2, 4
	segment := func(kind, flags uint32, offset, length, align uint64) []byte {
		return little(kind, flags, offset, offset, offset, length, length, align)
	}
	var out bytes.Buffer
	out.Write([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	out.Write(little(uint16(3), uint16(62), uint32(1), text, uint64(header), uint64(0), uint32(0),
		uint16(header), uint16(entry), uint16(headers), uint16(64), uint16(0), uint16(0)))
	if interp != "" {
		out.Write(segment(phdr, r, header, uint64(headers*entry), 8)) // how the loader learns where it lies
		out.Write(segment(inter, r, name, uint64(len(interp)+1), 1))
	}
	out.Write(segment(load, r|x, 0, size, page))
	out.Write(segment(load, r|w, page, uint64(len(dynamic)), page))
	out.Write(segment(dyn, r|w, page, uint64(len(dynamic)), 8))
	out.Write(segment(stack, r|w, 0, 0, 16))
	out.Write(body.Bytes())
	out.Write(make([]byte, page-out.Len()))
	out.Write(dynamic)
	return out.Bytes()
}

func little(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic("bait: " + err.Error()) // a type without a size
		}
	}
	return b.Bytes()
}
