package run

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"

	"clusterctl/daemons/run/manager"
)

// inherited are the sockets that systemd had kept from the process before.
var inherited = sync.OnceValue(func() []*os.File { return activation.Files(true) })

// Inherited returns the sockets of a name that the process before has given to Keep, in their order. Each is the
// caller's from now on; a second call has none.
func Inherited(name string) (list []*os.File) {
	for i, f := range inherited() {
		if f != nil && f.Name() == name {
			list = append(list, f)
			inherited()[i] = nil
		}
	}
	return list
}

// Keep gives systemd a socket to keep for the process that comes after this one when the unit is restarted or fails:
// what arrives between the two waits in the socket. It reports whether there is a systemd. The unit must allow it, by
// FileDescriptorStoreMax.
func Keep(name string, socket syscall.Conn) (bool, error) {
	if !manager.There() {
		return false, nil
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		// FDPOLL: an error that is pending on the socket is no reason to drop it.
		var failed error
		err = raw.Control(func(fd uintptr) { failed = manager.Tell("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, int(fd)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		return false, fmt.Errorf("have the socket %s kept: %w", name, err)
	}
	return true, nil
}

// Drop has systemd close the sockets of a name that it keeps.
func Drop(name string) error {
	if err := manager.Tell("FDSTOREREMOVE=1\nFDNAME=" + name); err != nil {
		return fmt.Errorf("have the socket %s dropped: %w", name, err)
	}
	return nil
}
