package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
)

// lookEvery is how often a log is looked at: as much is the error of what follow measures.
const lookEvery = 100 * time.Microsecond

// follow reads a log until its session has ended, and returns how long after it happened each denial was there to be read,
// and the largest resident size of the session's sharness-agent.
func follow(path string, session int, ended <-chan error) (late []time.Duration, rss uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var rest []byte
	buf, agent := make([]byte, 1<<16), ""
	for over := false; ; {
		n, err := f.Read(buf)
		now := time.Now()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		rest = append(rest, buf[:n]...)
		for {
			line, more, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				break
			}
			rest = more
			e, err := event.Parse(line)
			if err != nil {
				return nil, 0, err
			}
			if e.Type == event.ExecDenied && e.Phase == "" {
				late = append(late, now.Sub(e.Time))
			}
		}
		if n > 0 {
			continue
		}
		if over {
			return late, rss, nil
		}
		select {
		case err := <-ended:
			if err != nil {
				return nil, 0, err
			}
			over = true // once more, for what came between
		default:
			if agent == "" {
				agent = childOf(session, "sharness-agent")
			}
			rss = max(rss, resident(agent))
			time.Sleep(lookEvery)
		}
	}
}

// childOf is the folder in /proc of a child of that name; empty while there is none.
func childOf(parent int, name string) string {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return ""
	}
	for _, task := range tasks {
		pids, err := os.ReadFile(task)
		if err != nil {
			continue // ended
		}
		for _, pid := range strings.Fields(string(pids)) {
			dir := "/proc/" + pid
			if comm, err := os.ReadFile(dir + "/comm"); err == nil && strings.TrimSpace(string(comm)) == name {
				return dir
			}
		}
	}
	return ""
}

// resident is the resident size of a process in bytes; 0 when it is gone.
func resident(dir string) uint64 {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
