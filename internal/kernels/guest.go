package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What the initial file system holds besides this program.
const (
	moduleList = "/modules" // paths of modules, in the order in which they are loaded
	jobList    = "/jobs.json"
	runnerArg  = "run-jobs"
	portName   = "results"
)

// Disks in the order of the machine's command line.
const rootDisk, modulesDisk, sourceDisk = "/dev/vda", "/dev/vdb", "/dev/vdc"

// guest is process 1. It never returns: the machine is switched off, and a reason stands on the console.
func guest() {
	err := boot()
	if err != nil {
		fmt.Println("guest:", err)
	}
	unix.Sync()
	err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("guest: power off:", err)
	select {}
}

func boot() error {
	list, err := os.ReadFile(jobList)
	if err != nil {
		return err
	}
	if err := errors.Join(loadModules(), switchRoot(), mountAll()); err != nil {
		return err
	}
	if err := os.WriteFile("/run"+jobList, list, 0o644); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	group, err := scope()
	if err != nil {
		return err
	}
	// A child, because process 1 reaps everything and os/exec wants to reap its own.
	runner, err := syscall.ForkExec("/proc/self/exe", []string{"kernels", runnerArg}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"}, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Setsid: true}})
	if err != nil {
		return fmt.Errorf("start runner: %w", err)
	}
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if pid == runner || err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func loadModules() error {
	list, err := os.ReadFile(moduleList)
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(list)) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// switchRoot makes the disk the root, as a distribution's initial file system does.
func switchRoot() error {
	if err := (mount{"dev", "/dev", "devtmpfs", 0, ""}).do(); err != nil {
		return err
	}
	// The devices appear a moment after their driver.
	for range 1000 {
		if _, err := os.Stat(sourceDisk); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, m := range []mount{
		{rootDisk, "/new", "ext4", 0, ""},
		{modulesDisk, "/new/usr/lib/modules", "ext4", unix.MS_RDONLY, ""},
		{sourceDisk, "/new" + source, "ext4", 0, ""},
		{"/dev", "/new/dev", "", unix.MS_MOVE, ""},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	return errors.Join(unix.Chroot("."), os.Chdir("/"))
}

// mountAll mounts what systemd does, shared as it does.
func mountAll() error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []mount{
		{"proc", "/proc", "proc", quiet, ""},
		{"sysfs", "/sys", "sysfs", quiet, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", quiet, "nsdelegate,memory_recursiveprot"},
		{"securityfs", "/sys/kernel/security", "securityfs", quiet, ""},
		{"tracefs", "/sys/kernel/tracing", "tracefs", quiet, ""},
		{"bpf", "/sys/fs/bpf", "bpf", quiet, "mode=700"},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=000"},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"mqueue", "/dev/mqueue", "mqueue", quiet, ""},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return errors.Join(unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""), unix.Sethostname([]byte("sharness-test")))
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

// scope is the group that a login gets under systemd, with the controllers that systemd turns on above it. Process 1
// stays in the root, which may have members beside groups.
func scope() (*os.File, error) {
	const root = "/sys/fs/cgroup"
	for _, dir := range []string{root, root + "/user.slice"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+cpu +io +memory +pids"), 0); err != nil {
			return nil, err
		}
	}
	dir := root + "/user.slice/session-1.scope"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Open(dir)
}

// runJobs is the child of process 1.
func runJobs() int {
	if err := runAll(); err != nil {
		fmt.Println("runner:", err)
		return 1
	}
	return 0
}

func runAll() error {
	raw, err := os.ReadFile("/run" + jobList)
	if err != nil {
		return err
	}
	var list []job
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	out, err := port()
	if err != nil {
		return err
	}
	defer out.Close()
	say := json.NewEncoder(out)
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	if err := say.Encode(record{Fact: unix.ByteSliceToString(uts.Release[:])}); err != nil {
		return err
	}
	times, err := pace()
	if err != nil {
		return fmt.Errorf("measure the pace: %w", err)
	}
	if err := errors.Join(say.Encode(record{Pace: times}), os.Setenv(paceEnv, strconv.Itoa(times))); err != nil {
		return err
	}
	for _, j := range list {
		if err := run(j, say); err != nil {
			return err
		}
	}
	return nil
}

// paceEnv tells tests how slow this machine is; kerneltest.Within reads it.
const paceEnv = "KERNELTEST_PACE"

// start is how long it takes on a real processor to run /usr/bin/true to its end: 0.6 ms at best on the one where sharness
// was built; 1 ms gives an emulated one less time than it could claim.
const start = time.Millisecond

// pace says how many times longer it takes here at best, rounded up: what disturbs a host for a moment is no measure.
func pace() (int, error) {
	best := time.Hour
	for range 100 {
		began := time.Now()
		pid, err := syscall.ForkExec("/usr/bin/true", []string{"true"}, &syscall.ProcAttr{})
		if err != nil {
			return 0, err
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			return 0, err
		}
		best = min(best, time.Since(began))
	}
	return int((best + start - 1) / start), nil
}

// port finds the channel to the host by its name.
func port() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		name, err := os.ReadFile(n)
		if err == nil && strings.TrimSpace(string(name)) == portName {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(n)), os.O_WRONLY, 0)
		}
	}
	return nil, errors.New("no port for the results")
}

// run runs one job and says each line of it as it comes: what is known survives a machine that hangs.
func run(j job, say *json.Encoder) error {
	if err := say.Encode(record{Job: j.Name, Start: true}); err != nil {
		return err
	}
	fmt.Println("runner:", j.Name) // on the console, beside what the kernel has to say
	ctx, cancel := context.WithTimeout(context.Background(), j.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.Argv[0], j.Argv[1:]...)
	cmd.Dir = filepath.Join(source, j.Dir)
	cmd.WaitDelay = 5 * time.Second
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = w, w
	began := time.Now()
	end := record{Job: j.Name, Exit: new(int)}
	if err := cmd.Start(); err != nil {
		end.Error, *end.Exit = err.Error(), 127
	}
	w.Close()
	lines := make(chan error, 1)
	go func() {
		s := bufio.NewReader(r)
		for {
			line, err := s.ReadString('\n')
			if line != "" {
				if serr := say.Encode(record{Job: j.Name, Out: strings.TrimSuffix(line, "\n")}); serr != nil {
					lines <- serr
					return
				}
			}
			if err != nil {
				lines <- nil
				return
			}
		}
	}()
	if cmd.Process != nil {
		if err := cmd.Wait(); err != nil {
			end.Error, *end.Exit = err.Error(), cmd.ProcessState.ExitCode()
		}
	}
	// A process that was left behind may hold the pipe for ever.
	r.SetReadDeadline(time.Now().Add(5 * time.Second))
	if err := <-lines; err != nil {
		return err
	}
	r.Close()
	end.Took = time.Since(began)
	for _, name := range j.Home {
		data, err := os.ReadFile(filepath.Join("/tmp", name))
		if err != nil {
			end.Error, *end.Exit = err.Error(), max(1, *end.Exit)
			continue
		}
		if err := say.Encode(record{Job: j.Name, File: name, Data: data}); err != nil {
			return err
		}
	}
	return say.Encode(end)
}
