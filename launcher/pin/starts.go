package pin

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
)

// headBytes is what the kernel sees of a file when it decides what it is: BINPRM_BUF_SIZE.
const headBytes = 256

// StartsWith says which image the kernel starts a file with: the interpreter of a script, the loader of a program; empty
// for a static one. A link in it is followed where it leads somewhere. What is neither is an error.
func StartsWith(r io.ReaderAt, path string) (string, error) {
	head := make([]byte, headBytes)
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	var start string
	if head = head[:n]; bytes.HasPrefix(head, []byte("#!")) {
		if start, _, err = shebang(head); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	} else {
		o, err := readObject(r, path)
		if err != nil {
			return "", err
		}
		start = o.interp
	}
	if real, err := filepath.EvalSymlinks(start); err == nil && start != "" {
		return real, nil
	}
	return start, nil
}
