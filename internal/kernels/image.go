package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// images are what all machines share.
type images struct {
	root, source string
	init         string
	jobs         []job
}

// command runs one to its end and shows what it said only when it failed.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// ext4 makes an image of a tree. Nothing is mounted for it.
func ext4(image, tree, size string) error {
	return command("mke2fs", "-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", "-d", tree, image, size)
}

// build makes the test binaries, process 1, and the disks that do not depend on the kernel.
func (h *harness) build() (images, error) {
	im := images{root: h.root + ".ext4", source: filepath.Join(h.work, "source.ext4"), init: filepath.Join(h.work, "init")}
	if err := goBuild(false, "build", "-o", im.init, "./internal/kernels"); err != nil {
		return im, err
	}
	tree := filepath.Join(h.work, "source")
	if err := copySource(tree); err != nil {
		return im, err
	}
	for _, j := range jobs {
		if len(h.only) > 0 && !slices.Contains(h.only, j.Name) || len(h.only) == 0 && j.ByHand && !h.all {
			continue
		}
		if j.Test {
			name := filepath.Base(j.Dir) + ".test"
			if err := goBuild(j.Cgo, "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(tree, j.Dir, name), "./"+j.Dir); err != nil {
				return im, err
			}
			j.Argv = append([]string{"./" + name, "-test.v"}, h.tests(j)...)
		}
		// One that hangs leaves the others their time.
		j.Timeout = h.limit / 2
		im.jobs = append(im.jobs, j)
	}
	for _, name := range h.only {
		if !slices.ContainsFunc(im.jobs, func(j job) bool { return j.Name == name }) {
			return im, fmt.Errorf("no job is called %q", name)
		}
	}
	if err := ext4(im.source, tree, "1G"); err != nil {
		return im, err
	}
	if _, err := os.Stat(im.root); err == nil {
		return im, nil
	}
	if err := ext4(im.root+".new", h.root, "2G"); err != nil {
		return im, err
	}
	return im, os.Rename(im.root+".new", im.root)
}

// tests are the flags of a test binary.
func (h *harness) tests(j job) []string {
	// A little earlier than the job's own end, so that the tests say where they stand.
	flags := []string{"-test.timeout=" + (h.limit/2 - 10*time.Second).String()}
	if j.Skip != "" {
		flags = append(flags, "-test.skip="+j.Skip)
	}
	run := j.Run
	if h.all && j.All != "" {
		run = j.All
	}
	if h.run != "" {
		run = h.run
	}
	if run != "" {
		flags = append(flags, "-test.run="+run)
	}
	return flags
}

func goBuild(cgo bool, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if cgo {
		cmd.Env[len(cmd.Env)-1] = "CGO_ENABLED=1"
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// copySource copies what the repository holds, and what was built of it. What is copied by root belongs to root, whoever
// has checked it out.
func copySource(tree string) error {
	list, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-coz", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.FieldsFunc(string(list), func(r rune) bool { return r == 0 })
	built, err := filepath.Glob("bin/*")
	if err != nil {
		return err
	}
	for _, name := range append(files, built...) {
		if err := copyFile(name, filepath.Join(tree, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	fi, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return nil // removed and not committed yet; links and folders are none of the tests'
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// needed are the drivers of the machine's disks and of its channel home; a kernel may have them built in.
var needed = []string{"virtio_pci", "virtio_blk", "virtio_console"}

// modulesImage makes the disk with a kernel's modules, which it keeps. Modules stay compressed: the root has what loads
// them, as on a Debian machine.
func modulesImage(k kernel) (string, error) {
	image := k.dir + ".modules.ext4"
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := command("depmod", "-b", strings.TrimSuffix(k.modules, "/lib/modules/"+k.release), k.release); err != nil {
		return "", err
	}
	if err := ext4(image+".new", filepath.Dir(k.modules), "256M"); err != nil {
		return "", err
	}
	return image, os.Rename(image+".new", image)
}

// initial makes the initial file system: process 1, the jobs, and the drivers with what these need.
func (h *harness) initial(k kernel, im images) (string, error) {
	dep, err := os.ReadFile(filepath.Join(k.modules, "modules.dep"))
	if err != nil {
		return "", err
	}
	order, err := closure(string(dep), needed)
	if err != nil {
		return "", err
	}
	var list strings.Builder
	var a archive
	a.dir("dev")
	a.dir("new")
	for _, path := range order {
		data, err := module(filepath.Join(k.modules, path))
		if err != nil {
			return "", err
		}
		name := "m-" + strings.SplitN(filepath.Base(path), ".", 2)[0]
		a.file(name, 0o644, data)
		fmt.Fprintf(&list, "/%s\n", name)
	}
	a.file(strings.TrimPrefix(moduleList, "/"), 0o644, []byte(list.String()))
	init, err := os.ReadFile(im.init)
	if err != nil {
		return "", err
	}
	a.file("init", 0o755, init)
	raw, err := json.Marshal(im.jobs)
	if err != nil {
		return "", err
	}
	a.file(strings.TrimPrefix(jobList, "/"), 0o644, raw)
	path := filepath.Join(h.work, "initrd-"+k.name)
	return path, os.WriteFile(path, a.end(), 0o644)
}

// closure returns the files of the named modules and all that these need, needed ones first. What modules.dep does not
// name is built in.
func closure(dep string, names []string) ([]string, error) {
	needs := map[string][]string{}
	byName := map[string]string{}
	for line := range strings.Lines(dep) {
		path, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: %q", line)
		}
		needs[path] = strings.Fields(rest)
		byName[strings.ReplaceAll(strings.SplitN(filepath.Base(path), ".", 2)[0], "-", "_")] = path
	}
	var order []string
	seen := map[string]bool{}
	var add func(path string)
	add = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		for _, n := range needs[path] {
			add(n)
		}
		order = append(order, path)
	}
	for _, n := range names {
		if path, ok := byName[n]; ok {
			add(path)
		}
	}
	return order, nil
}

// module reads one uncompressed: not every kernel can do that itself.
func module(path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command("xz", "-dc", path)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("xz %s: %w: %s", path, err, errs.Bytes())
	}
	return out.Bytes(), nil
}

// archive is a cpio archive in the "newc" format, which the kernel reads (its buffer-format.rst for initramfs).
type archive struct {
	bytes.Buffer
	ino int
}

func (a *archive) entry(name string, mode uint32, data []byte) {
	a.ino++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

func (a *archive) dir(name string)                            { a.entry(name, 0o040755, nil) }
func (a *archive) file(name string, mode uint32, data []byte) { a.entry(name, 0o100000|mode, data) }

func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.Bytes()
}
