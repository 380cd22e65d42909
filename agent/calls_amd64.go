package agent

import "golang.org/x/sys/unix"

// auditArch is AUDIT_ARCH_* of the native calls.
const auditArch = unix.AUDIT_ARCH_X86_64

// native are the calls that newer architectures do without.
var native = []call{
	processCall("fork", unix.SYS_FORK, aboutSpace),
	processCall("vfork", unix.SYS_VFORK, aboutSpace),
	processCall("setrlimit", unix.SYS_SETRLIMIT, aboutLimit).also(noSys),
	processCall("iopl", unix.SYS_IOPL, aboutKernel),
	processCall("ioperm", unix.SYS_IOPERM, aboutKernel),
	processCall("modify_ldt", unix.SYS_MODIFY_LDT, aboutKernel),
	processCall("uselib", unix.SYS_USELIB, aboutKernel).path(0),
	processCall("ustat", unix.SYS_USTAT, aboutKernel),
	processCall("sysfs", unix.SYS_SYSFS, aboutKernel),
	processCall("create_module", unix.SYS_CREATE_MODULE, aboutKernel),
	processCall("get_kernel_syms", unix.SYS_GET_KERNEL_SYMS, aboutKernel),
	processCall("query_module", unix.SYS_QUERY_MODULE, aboutKernel),
	processCall("getpmsg", unix.SYS_GETPMSG, aboutKernel),
	processCall("putpmsg", unix.SYS_PUTPMSG, aboutKernel),
	processCall("afs_syscall", unix.SYS_AFS_SYSCALL, aboutKernel),
	processCall("tuxcall", unix.SYS_TUXCALL, aboutKernel),
	processCall("security", unix.SYS_SECURITY, aboutKernel),
	processCall("vserver", unix.SYS_VSERVER, aboutKernel),
	processCall("_sysctl", unix.SYS__SYSCTL, aboutKernel),

	writeCall("chmod", unix.SYS_CHMOD, aboutMode).path(0).keyed(1),
	writeCall("mkdir", unix.SYS_MKDIR, aboutMode).path(0).keyed(1),
	writeCall("mknod", unix.SYS_MKNOD, aboutMode).path(0).keyed(1, 2),

	fileCall("stat", unix.SYS_STAT, aboutLook).path(0),
	fileCall("lstat", unix.SYS_LSTAT, aboutLook).path(0),
	fileCall("access", unix.SYS_ACCESS, aboutLook).path(0),
	fileCall("readlink", unix.SYS_READLINK, aboutLook).path(0),

	writeCall("open", unix.SYS_OPEN, aboutPath).path(0).keyed(1, 2).setID(2),
	writeCall("creat", unix.SYS_CREAT, aboutPath).path(0).keyed(1).setID(1),
	writeCall("chown", unix.SYS_CHOWN, aboutPath).path(0),
	writeCall("lchown", unix.SYS_LCHOWN, aboutPath).path(0),
	writeCall("utimes", unix.SYS_UTIMES, aboutPath).path(0),
	writeCall("utime", unix.SYS_UTIME, aboutPath).path(0),
	nameCall("unlink", unix.SYS_UNLINK, aboutPath).path(0),
	nameCall("rmdir", unix.SYS_RMDIR, aboutPath).path(0),
	nameCall("rename", unix.SYS_RENAME, aboutPath).path(1).more(0),
	nameCall("renameat", unix.SYS_RENAMEAT, aboutPath).at(2, 3).more(1),
	writeCall("link", unix.SYS_LINK, aboutPath).path(1).more(0),
	writeCall("symlink", unix.SYS_SYMLINK, aboutPath).path(1),
}
