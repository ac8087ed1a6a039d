package machines

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/crypto/ssh"
)

// Dial connects from the lab's network. Its signature is that of http.Transport's DialContext.
func (l *Lab) Dial(ctx context.Context, kind, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, 1)
	go func() {
		// The thread stays in the lab's namespace. It remains locked to the goroutine and ends with it.
		runtime.LockOSThread()
		handle, err := netns.GetFromPath(l.netns())
		if err != nil {
			results <- result{nil, fmt.Errorf("enter the network of lab %s: %w", l.Name, err)}
			return
		}
		defer handle.Close()
		if err := netns.Set(handle); err != nil {
			results <- result{nil, fmt.Errorf("enter the network of lab %s: %w", l.Name, err)}
			return
		}
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, kind, address)
		results <- result{conn, err}
	}()
	r := <-results
	return r.conn, r.err
}

// makeKeys creates the key pair that all machines accept.
func (l *Lab) makeKeys() error {
	private, public, err := newKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.Key(), private, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(l.KnownHosts(), nil, 0o600); err != nil {
		return err
	}
	return os.WriteFile(l.Key()+".pub", ssh.MarshalAuthorizedKey(public), 0o644)
}

// hostKey creates a machine's own key and adds it to the lab's known hosts.
func (l *Lab) hostKey(address string) ([]byte, error) {
	private, public, err := newKey()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(l.KnownHosts(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(file, "%s %s", address, ssh.MarshalAuthorizedKey(public)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return private, file.Close()
}

func newKey() ([]byte, ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "lab")
	if err != nil {
		return nil, nil, err
	}
	sshKey, err := ssh.NewPublicKey(public)
	return pem.EncodeToMemory(block), sshKey, err
}

// removeCgroups removes the cgroups of machines and their pods below the lab's cgroups.
func (l *Lab) removeCgroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/clusterctl-lab-" + l.Name)
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		errs = append(errs, err)
		for i := len(dirs) - 1; i >= 0; i-- { // children before parents
			if err := removeEmptyCgroup(dirs[i]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// removeEmptyCgroup removes a cgroup, and waits if its last process is still ending.
func removeEmptyCgroup(dir string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
