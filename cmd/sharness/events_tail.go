package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sharness/sharness/event"
)

// tail reads whole lines of a file that others append to, rotate and truncate.
type tail struct {
	path   string
	file   *os.File
	reader *bufio.Reader
	offset int64  // read from file so far
	part   []byte // of a line whose end was not there yet
	skip   bool   // inside a line that is over the bound
}

func openTail(path string) (*tail, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s is a folder", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &tail{path: path, file: file, reader: bufio.NewReader(file)}, nil
}

// next returns the next line without its end. io.EOF: there is no whole line now; what is there is kept.
// event.ErrTooBig: a line was left out. The slice is valid until the next call.
func (t *tail) next() ([]byte, error) {
	for {
		chunk, err := t.reader.ReadSlice('\n')
		t.offset += int64(len(chunk))
		if !t.skip {
			t.part = append(t.part, chunk...)
		}
		if len(t.part) > event.MaxBytes+1 {
			t.part, t.skip = t.part[:0], true
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		}
		line := bytes.TrimSuffix(t.part, []byte("\n"))
		t.part = t.part[:0]
		if t.skip {
			t.skip = false
			return nil, event.ErrTooBig
		}
		if len(line) == 0 {
			continue // after a line that was written in part, the next begins on its own
		}
		return line, nil
	}
}

// toEnd passes over all lines that are there.
func (t *tail) toEnd() error {
	for {
		if _, err := t.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil && !errors.Is(err, event.ErrTooBig) {
			return err
		}
	}
}

// toLastSession goes to where the last session begins and returns its name; to the beginning of a log that does not say
// where one begins.
func (t *tail) toLastSession() (session string, err error) {
	var at int64
	for {
		before := t.offset - int64(len(t.part))
		line, err := t.next()
		if errors.Is(err, io.EOF) {
			return session, t.seek(at)
		}
		if err != nil && !errors.Is(err, event.ErrTooBig) {
			return "", err
		}
		// Most lines are not parsed: a log may be long.
		if err != nil || !bytes.Contains(line, []byte(event.SessionStart)) {
			continue
		}
		if e, err := event.Parse(line); err == nil && e.Type == event.SessionStart {
			at, session = before, e.Session
		}
	}
}

func (t *tail) seek(at int64) error {
	if _, err := t.file.Seek(at, io.SeekStart); err != nil {
		return err
	}
	t.reader.Reset(t.file)
	t.offset, t.part, t.skip = at, nil, false
	return nil
}

// rotate is called at the end of the file: when the path names another one now, or the file became shorter than what
// was read, it starts from the beginning.
func (t *tail) rotate() error {
	now, err := os.Stat(t.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // between rename and create
	}
	if err != nil {
		return err
	}
	was, err := t.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case !os.SameFile(was, now):
		if was.Size() > t.offset {
			return nil // the last lines of the old one first
		}
		fresh, err := openTail(t.path)
		if err != nil {
			return err
		}
		_ = t.file.Close()
		*t = *fresh
	case was.Size() < t.offset:
		return t.seek(0)
	}
	return nil
}
