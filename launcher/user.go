package launcher

import (
	"errors"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// User is the person whose files an agent works on: the caller behind sudo, or the owner of the workspace.
type User struct {
	UID, GID int
	Groups   []int // supplementary, without GID
	Name     string
	Home     string
}

// callerUser is the caller behind sudo, if there is one.
func callerUser() (User, bool, error) {
	v := os.Getenv("SUDO_UID")
	if v == "" {
		return User{}, false, nil
	}
	uid, err := strconv.Atoi(v)
	if err != nil || uid < 0 {
		return User{}, false, refusef("SUDO_UID is %q, not a number", v)
	}
	u, err := userOf(uid, uid)
	return u, err == nil, err
}

// ownerUser is the owner of the workspace.
func ownerUser(workspace *os.File) (User, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(workspace.Fd()), &st); err != nil {
		return User{}, refusef("workspace %s: %w", workspace.Name(), err)
	}
	return userOf(int(st.Uid), int(st.Gid))
}

// userOf looks a user up. One without an entry (a container's id, say) has the group given, no others, and no home that
// could be protected.
func userOf(uid, gid int) (User, error) {
	u := User{UID: uid, GID: gid, Name: strconv.Itoa(uid)}
	entry, err := user.LookupId(strconv.Itoa(uid))
	if errors.As(err, new(user.UnknownUserIdError)) {
		return u, nil
	}
	if err != nil {
		return User{}, refusef("user %d: %w", uid, err)
	}
	u.Name, u.Home = entry.Username, entry.HomeDir
	if u.GID, err = strconv.Atoi(entry.Gid); err != nil {
		return User{}, refusef("group of %s: %w", entry.Username, err)
	}
	groups, err := entry.GroupIds()
	if err != nil {
		return User{}, refusef("groups of %s: %w", entry.Username, err)
	}
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil && n != u.GID {
			u.Groups = append(u.Groups, n)
		}
	}
	return u, nil
}
