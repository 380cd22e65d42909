// Command kernels runs what tests the kernel on other kernels than this host's: each is booted in an emulated machine
// with pure cgroup2, from images made here, and what the machine says comes home as a table. .ci/kernels downloads what
// it needs and calls it.
//
// The same program, built without cgo, is process 1 of the machines (guest.go). A machine has no network, sees its disks
// as they were made, and keeps nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		guest()
	}
	if len(os.Args) == 2 && os.Args[1] == runnerArg {
		os.Exit(runJobs())
	}
	var h harness
	flag.StringVar(&h.cache, "cache", "", "`folder` for images and results")
	flag.StringVar(&h.root, "root", "", "`folder` with the tree of the machines' root")
	flag.Func("only", "run only the jobs of these `names`, with commas between", func(names string) error {
		h.only = strings.Split(names, ",")
		return nil
	})
	flag.BoolVar(&h.all, "all", false, "run also what is not about the kernel alone")
	flag.StringVar(&h.run, "run", "", "run only tests that match, as in go test")
	flag.DurationVar(&h.limit, "limit", 20*time.Minute, "how long one machine may run")
	flag.IntVar(&h.machines, "machines", 1, "how many run at one time")
	flag.Parse()
	if err := h.main(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

type harness struct {
	cache, root string
	only        []string
	run         string
	all         bool
	limit       time.Duration
	machines    int
	work        string // removed at the end
}

// kernel is an unpacked package of Debian's.
type kernel struct {
	name    string // ours
	dir     string // of the package
	release string // what uname says
	image   string
	modules string // folder
}

func (h *harness) main(args []string) error {
	var kernels []kernel
	for _, a := range args {
		name, dir, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=FOLDER", a)
		}
		k, err := open(name, dir)
		if err != nil {
			return err
		}
		kernels = append(kernels, k)
	}
	if len(kernels) == 0 || h.cache == "" || h.root == "" {
		return errors.New("-cache, -root and a kernel are needed; call .ci/kernels")
	}
	var err error
	if h.work, err = os.MkdirTemp(h.cache, "run-"); err != nil {
		return err
	}
	defer os.RemoveAll(h.work)

	began := time.Now()
	images, err := h.build()
	if err != nil {
		return err
	}
	fmt.Printf("built in %.0f s\n", time.Since(began).Seconds())
	results := filepath.Join(h.cache, "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return err
	}
	kept, err := os.Create(filepath.Join(results, "summary.txt"))
	if err != nil {
		return err
	}
	defer kept.Close()
	out := io.MultiWriter(os.Stdout, kept)
	reports, err := h.each(kernels, images, out)
	if err != nil {
		return err
	}
	err = summary(out, reports)
	fmt.Printf("everything they said: %s\n", results)
	return errors.Join(err, timings(out, reports))
}

// each tests all kernels, some at one time, and prints them in their order as soon as they have ended.
func (h *harness) each(kernels []kernel, im images, out io.Writer) ([]*report, error) {
	type result struct {
		r   *report
		err error
	}
	free := make(chan struct{}, max(1, h.machines))
	results := make([]chan result, len(kernels))
	for i := range kernels {
		results[i] = make(chan result, 1)
	}
	go func() {
		for i, k := range kernels {
			free <- struct{}{}
			go func() {
				defer func() { <-free }()
				r, err := h.test(k, im)
				results[i] <- result{r, err}
			}()
		}
	}()
	var reports []*report
	for i, k := range kernels {
		got := <-results[i]
		if got.err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, got.err) // machines that still run end with this process
		}
		got.r.print(out)
		reports = append(reports, got.r)
	}
	return reports, nil
}

// open finds the kernel and its modules in the tree of a package. Since 7.2 Debian keeps both in one folder.
func open(name, dir string) (kernel, error) {
	k := kernel{name: name, dir: dir}
	modules := append(glob(dir, "lib/modules/*"), glob(dir, "usr/lib/modules/*")...)
	if len(modules) != 1 {
		return k, fmt.Errorf("%s: want the modules of one kernel, found %q", dir, modules)
	}
	k.modules, k.release = modules[0], filepath.Base(modules[0])
	images := append(glob(dir, "boot/vmlinuz-*"), glob(k.modules, "vmlinuz")...)
	if len(images) != 1 {
		return k, fmt.Errorf("%s: want one kernel, found %q", dir, images)
	}
	k.image = images[0]
	return k, nil
}

// glob leaves out the one error there is, of a pattern that is none.
func glob(dir, pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, pattern))
	return found
}
