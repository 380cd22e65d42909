package attempt

import (
	"errors"

	"golang.org/x/sys/unix"
)

// listens judges by the namespace: a listener is reachable from the host only in the host's own.
func listens(t *Target, bind unix.Sockaddr) Outcome {
	return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) Outcome {
		if bind != nil {
			if err := unix.Bind(fd, bind); err != nil {
				return judge("bind", err)
			}
		}
		if err := unix.Listen(fd, 1); err != nil {
			return judge("listen", err)
		}
		own := nsInode("net")
		if t.HostNetNS == 0 || own == 0 {
			return impossible("the host's network namespace is not known")
		}
		if own != t.HostNetNS {
			return closed("the listener is in a network namespace of its own")
		}
		return opened("listening in the host's network namespace")
	})
}

func interfaces() Outcome {
	names, err := readDirNames("/sys/class/net")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return interfacesByIoctl()
	}
	if err != nil {
		return judge("read /sys/class/net", err)
	}
	for _, n := range names {
		if n != "lo" {
			return opened("there is %s", n)
		}
	}
	return closed("there is nothing but lo")
}

// interfacesByIoctl counts the interfaces by their index: a fresh namespace has lo as 1.
func interfacesByIoctl() Outcome {
	return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
		for i := uint32(2); i < 64; i++ {
			var ifr struct {
				name  [16]byte
				index uint32
				_     [20]byte
			}
			ifr.index = i
			if ioctlPointer(fd, unix.SIOCGIFNAME, &ifr) == nil {
				return opened("there is %s", unix.ByteSliceToString(ifr.name[:]))
			}
		}
		return closed("there is nothing but lo")
	})
}
