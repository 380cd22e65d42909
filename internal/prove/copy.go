package prove

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/sharness/sharness/internal/prove/report"
)

// pipes carry what a domain writes to the reporter.
type pipes struct {
	null, stdout, stderr *os.File
	readers              []*os.File
	copying              sync.WaitGroup
}

func newPipes(f *report.Frames) (*pipes, error) {
	p := &pipes{}
	var err error
	if p.null, err = os.Open(os.DevNull); err != nil {
		return nil, err
	}
	for kind, end := range map[report.Kind]**os.File{report.KindResults: &p.stdout, report.KindWords: &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		*end = w
		p.readers = append(p.readers, r)
		to := f.Copy(kind)
		p.copying.Go(func() { _, _ = io.Copy(to, r) })
	}
	return p, nil
}

// close waits until everything was copied. Whoever held the other ends must have ended.
func (p *pipes) close() error {
	for _, f := range []*os.File{p.null, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
	p.copying.Wait()
	for _, r := range p.readers {
		r.Close()
	}
	return nil
}

// tail copies what is appended to a file that may not be there yet.
type tail struct {
	stopping, done chan struct{}
	err            error
}

// Often enough for a table that is printed as it goes.
const tailTime = 20 * time.Millisecond

func follow(path string, to io.Writer) *tail {
	t := &tail{stopping: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		var f *os.File
		ticker := time.NewTicker(tailTime)
		defer ticker.Stop()
		for last := false; ; {
			if f == nil {
				var err error
				if f, err = os.Open(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.err = err
					return
				}
			}
			if f != nil {
				if _, t.err = io.Copy(to, f); t.err != nil {
					return
				}
			}
			if last {
				if f != nil {
					f.Close()
				}
				return
			}
			select {
			case <-ticker.C:
			case <-t.stopping:
				last = true
			}
		}
	}()
	return t
}

// stop reads to the end.
func (t *tail) stop() error {
	close(t.stopping)
	<-t.done
	return t.err
}
