package launcher

import (
	"github.com/sharness/sharness/internal/confine"
	"golang.org/x/sys/unix"
)

// Landlock rights by what a view grants (landlock(7)). confine drops those that the ABI in force does not know, and
// those of folders where a rule names a file.
const (
	accessRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	accessExec = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE

	// accessShared is writing in a folder that both the orchestrator and commands see: no sockets and no FIFOs, through
	// which a descriptor could travel, or a reader outside could be made to wait.
	accessShared = accessRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE

	// accessWrite is writing in a folder of the domain's own.
	accessWrite = accessShared | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO

	accessDevice = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	accessTree = accessRead | unix.LANDLOCK_ACCESS_FS_EXECUTE

	// accessUnix is LANDLOCK_ACCESS_FS_RESOLVE_UNIX (ABI 9), which golang.org/x/sys does not name yet: connecting to a
	// pathname socket whose server is outside the domain.
	accessUnix = 1 << 16
)

// confineLayer is the Landlock layer of a view.
func confineLayer(v *view) confine.Landlock {
	return confine.Landlock{Scoped: true, Paths: v.rules}
}
