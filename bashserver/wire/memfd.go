package wire

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// SealCommand puts c into a sealed memfd: whoever holds it later sees what was written and nothing else. The caller
// closes the file.
func SealCommand(c Command) (*os.File, error) {
	b, err := c.Encode()
	if err != nil {
		return nil, err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("sharness-command", flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // MFD_NOEXEC_SEAL came with Linux 6.3
		fd, err = unix.MemfdCreate("sharness-command", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:sharness-command")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, fmt.Errorf("write command: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, allSeals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal command: %w", err)
	}
	return f, nil
}

// ReadCommand reads and decodes a memfd that SealCommand made. It refuses one that could still change, and reads by
// offset: the file position is shared with the process that sent it.
func ReadCommand(f *os.File) (Command, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return Command{}, fmt.Errorf("read command: seals: %w", err)
	}
	if seals&allSeals != allSeals {
		return Command{}, protocolError("request memfd is not sealed")
	}
	st, err := f.Stat()
	if err != nil {
		return Command{}, fmt.Errorf("read command: %w", err)
	}
	if st.Size() > MaxCommand {
		return Command{}, protocolError("command of %d bytes", st.Size())
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return Command{}, fmt.Errorf("read command: %w", err)
	}
	return DecodeCommand(b)
}
