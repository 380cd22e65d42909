package attempt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// bombs exhaust what the manifest limits, up to a little more than the limit and never on a host without one.
func bombs() []Attempt {
	const door = "orch-bomb"
	return append(socketPrograms(door), []Attempt{
		{door + "/processes", door, "start more processes than the manifest allows", NoServer, forkBomb},
		{door + "/memory", door, "use more memory than the manifest allows", NoServer, memoryBomb},
		{door + "/tmp", door, "fill /tmp beyond what the manifest allows", NoServer, func(t *Target) Outcome { return fill(t, "/tmp") }},
		{door + "/dev-shm", door, "fill /dev/shm beyond what the manifest allows", NoServer, func(t *Target) Outcome { return fill(t, "/dev/shm") }},
	}...)
}

// socketPrograms attaches one program to one socket: each takes of net.core.bpf_jit_limit, one number for the host.
func socketPrograms(door string) []Attempt {
	option := func(id, what string, how func(fd int) Outcome) Attempt {
		return Attempt{door + "/" + id, door, what, Opens, func(*Target) Outcome { return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, how) }}
	}
	accept := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1}
	prog := unix.SockFprog{Len: 1, Filter: &accept}
	return []Attempt{
		option("socket-filter", "attach a filter to a socket, which takes memory for programs that the host has little of", func(fd int) Outcome {
			return judge("SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog))
		}),
		option("reuseport-filter", "attach a program that chooses between the sockets of a port", func(fd int) Outcome {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return judge("SO_REUSEPORT", err)
			}
			return judge("SO_ATTACH_REUSEPORT_CBPF", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &prog))
		}),
		option("socket-ebpf", "attach a loaded program to a socket", func(fd int) Outcome {
			return reached("SO_ATTACH_BPF", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, -1))
		}),
		option("reuseport-ebpf", "attach a loaded program that chooses between the sockets of a port", func(fd int) Outcome {
			return reached("SO_ATTACH_REUSEPORT_EBPF", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, -1))
		}),
	}
}

func forkBomb(t *Target) Outcome {
	const most = 2048
	if t.LimitPids == 0 || t.LimitPids > most || !t.privatePID() {
		return impossible("no limit of at most %d processes is known", most)
	}
	var pids []int
	defer func() {
		for _, p := range pids {
			unix.Kill(p, unix.SIGKILL)
		}
		for _, p := range pids {
			wait(p)
		}
	}()
	pause := sys(unix.SYS_PAUSE)
	for range t.LimitPids + 64 {
		pid, errno := forkCalls(&pause, 1, t.shared, 0)
		if errno != 0 {
			return judge(fmt.Sprintf("fork after %d processes", len(pids)), errno, unix.EAGAIN)
		}
		pids = append(pids, int(pid))
	}
	return opened("%d processes at once", len(pids))
}

func memoryBomb(t *Target) Outcome {
	const most = 1 << 30
	if t.LimitMemory == 0 || t.LimitMemory > most || !t.privatePID() {
		return impossible("no limit of at most %d bytes is known", most)
	}
	// MAP_POPULATE touches every page; the child dies of the limit, and the kernel picks the largest.
	size := uintptr(t.LimitMemory + t.LimitMemory/4)
	_, err := t.forked(
		sys(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0), 0),
		sys(unix.SYS_MADVISE, previous, size, unix.MADV_POPULATE_WRITE))
	if k, ok := err.(killed); ok && k.sig == unix.SIGKILL {
		return closed("the kernel killed it at the limit")
	}
	return judge("populate memory", err, unix.ENOMEM, unix.EFAULT)
}

func fill(t *Target, dir string) Outcome {
	const most = 1 << 30
	if t.LimitTmp == 0 || t.LimitTmp > most || !t.privatePID() {
		return impossible("no limit of at most %d bytes is known", most)
	}
	p := t.scratchIn(dir, "fill")
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return judge("create", err)
	}
	defer unix.Close(fd)
	err = unix.Fallocate(fd, 0, 0, t.LimitTmp+t.LimitTmp/4)
	return judge("fallocate", err, unix.ENOSPC, unix.ENOMEM)
}
