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

// inherited returns the sockets that systemd stored for the previous process.
var inherited = sync.OnceValue(func() []*os.File { return activation.Files(true) })

// InheritedSockets returns the sockets that the previous process stored under name with StoreSocket, in order. The
// caller owns them. A second call returns none.
func InheritedSockets(name string) (list []*os.File) {
	for i, f := range inherited() {
		if f != nil && f.Name() == name {
			list = append(list, f)
			inherited()[i] = nil
		}
	}
	return list
}

// StoreSocket stores a socket in systemd for the next process of this unit, after a restart or failure. Data that
// arrives in between waits in the socket. StoreSocket reports whether there is a service manager. The unit must set
// FileDescriptorStoreMax.
func StoreSocket(name string, socket syscall.Conn) (bool, error) {
	if !manager.IsAvailable() {
		return false, nil
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		// FDPOLL=0: do not drop the socket because of a pending error.
		var failed error
		err = raw.Control(func(fd uintptr) { failed = manager.Send("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, int(fd)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		return false, fmt.Errorf("have the socket %s kept: %w", name, err)
	}
	return true, nil
}

// CloseStored makes systemd close the stored sockets of a name.
func CloseStored(name string) error {
	if err := manager.Send("FDSTOREREMOVE=1\nFDNAME=" + name); err != nil {
		return fmt.Errorf("have the socket %s dropped: %w", name, err)
	}
	return nil
}
