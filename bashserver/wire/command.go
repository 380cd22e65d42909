package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// The request memfd: magic u32, total bytes u32, argc u32, envc u32, then path, cwd, the arguments and the
// environment, each ended by a NUL. The strings can be handed to execve where they lie.
const (
	commandMagic  = 0x31434853 // "SHC1"
	commandHeader = 16
	// MaxCommand bounds the memfd: a request, the variables that the server sets, and a NUL for each string.
	MaxCommand = MaxRequest + 1<<20
)

// check says whether c can be encoded and executed.
func (c Command) check() error {
	if !strings.HasPrefix(c.Path, "/") || len(c.Path) > MaxPath {
		return fmt.Errorf("path %.64q is not absolute or too long", c.Path)
	}
	if !strings.HasPrefix(c.Cwd, "/") || len(c.Cwd) > MaxPath {
		return fmt.Errorf("working directory %.64q is not absolute or too long", c.Cwd)
	}
	if len(c.Argv) < 1 || len(c.Argv) > MaxArgs {
		return fmt.Errorf("%d arguments", len(c.Argv))
	}
	if len(c.Env) > MaxEnv {
		return fmt.Errorf("%d environment variables", len(c.Env))
	}
	return nil
}

// Encode gives the bytes of the request memfd.
func (c Command) Encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	n := commandHeader
	all := append([]string{c.Path, c.Cwd}, c.Argv...)
	all = append(all, c.Env...)
	for _, s := range all {
		if len(s) > MaxPayload || strings.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("encode command: %.64q is too long or holds a NUL", s)
		}
		n += len(s) + 1
	}
	if n > MaxCommand {
		return nil, fmt.Errorf("encode command: %d bytes, %d allowed", n, MaxCommand)
	}
	b := make([]byte, 0, n)
	for _, v := range []int{commandMagic, n, len(c.Argv), len(c.Env)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	for _, s := range all {
		b = append(append(b, s...), 0)
	}
	return b, nil
}

// DecodeCommand reads what Encode wrote. Its errors wrap ErrProtocol.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) < commandHeader || len(b) > MaxCommand {
		return Command{}, protocolError("command of %d bytes", len(b))
	}
	magic, total := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	argc, envc := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if magic != commandMagic || uint64(total) != uint64(len(b)) || argc > MaxArgs || envc > MaxEnv {
		return Command{}, protocolError("command header is wrong")
	}
	body := b[commandHeader:]
	want := 2 + int(argc) + int(envc)
	if bytes.Count(body, []byte{0}) != want || body[len(body)-1] != 0 {
		return Command{}, protocolError("command does not hold %d strings", want)
	}
	all := strings.Split(string(body[:len(body)-1]), "\x00")
	c := Command{Path: all[0], Cwd: all[1], Argv: all[2 : 2+argc], Env: all[2+argc:]}
	if err := c.check(); err != nil {
		return Command{}, protocolError("%v", err)
	}
	for _, s := range all {
		if len(s) > MaxPayload {
			return Command{}, protocolError("string of %d bytes", len(s))
		}
	}
	return c, nil
}
