package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// accelerator says whether this host's own processor can be used. A device that is there may not work for all that,
// and says so when a machine gets its first processor.
func accelerator() []string {
	kvm := []string{"-accel", "kvm", "-smp", "2", "-cpu", "host"}
	trial := exec.Command("qemu-system-x86_64", append(slices.Clone(kvm), "-nodefaults", "-display", "none", "-S", "-monitor", "stdio")...)
	trial.Stdin = strings.NewReader("quit\n")
	if trial.Run() == nil {
		return kvm
	}
	return emulated
}

// test boots one kernel, waits until the machine is off, and reads what it said.
func (h *harness) test(k kernel, im images) (*report, error) {
	mods, err := modulesImage(k)
	if err != nil {
		return nil, err
	}
	initrd, err := h.initial(k, im)
	if err != nil {
		return nil, err
	}
	results := filepath.Join(h.cache, "results", k.name)
	if err := errors.Join(os.RemoveAll(results), os.MkdirAll(results, 0o755)); err != nil {
		return nil, err
	}
	console, channel := filepath.Join(results, "console.txt"), filepath.Join(results, "said.jsonl")
	ctx, cancel := context.WithTimeout(context.Background(), h.limit)
	defer cancel()
	args := append(slices.Clone(accelerator()), "-m", "1500", "-no-reboot", "-nodefaults", "-display", "none", "-nic", "none",
		"-kernel", k.image, "-initrd", initrd,
		// A machine that panics ends instead of waiting.
		"-append", "console=ttyS0 panic=-1 quiet loglevel=4 random.trust_cpu=on",
		"-serial", "file:"+console,
		"-device", "virtio-serial-pci", "-chardev", "file,id=r,path="+channel, "-device", "virtserialport,chardev=r,name="+portName)
	for _, disk := range []string{im.root, mods, im.source} {
		// What the machine writes goes to a file that is deleted already.
		args = append(args, "-drive", "if=virtio,format=raw,snapshot=on,file="+disk)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+h.work)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	fmt.Printf("== %s: Linux %s\n", k.name, k.release) // at once: the table comes when it has ended
	began := time.Now()
	out, err := cmd.CombinedOutput()
	r, rerr := readReport(k, channel, results)
	if rerr != nil && err != nil {
		return nil, fmt.Errorf("qemu: %w: %s", err, out) // it has not even begun
	}
	if rerr != nil {
		return nil, rerr
	}
	r.took = time.Since(began)
	if cmd.ProcessState != nil {
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	switch {
	case ctx.Err() != nil:
		r.broken = fmt.Sprintf("the machine still ran after %v", h.limit)
	case err != nil:
		r.broken = fmt.Sprintf("qemu: %v: %s", err, out)
	case !r.complete(im.jobs):
		r.broken = fmt.Sprintf("the machine ended before its jobs did: %s", out)
	}
	if r.broken != "" {
		text, err := os.ReadFile(console)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		r.broken += "; its console ended with\n\t" + strings.Join(lines[max(0, len(lines)-40):], "\n\t")
	}
	return r, nil
}
