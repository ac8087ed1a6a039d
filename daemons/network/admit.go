package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"clusterctl/daemons/api/admitpod"
)

// maxRequests limits the concurrent admission requests. It exceeds the number of pods on a node.
const maxRequests = 1024

// minAcceptDelay and maxAcceptDelay are the shortest and longest delay before accepting again after an error, such as
// no free file descriptors.
const minAcceptDelay, maxAcceptDelay = 5 * time.Millisecond, time.Second

// openSocket opens the socket for the kubelet's requests. Only root can connect.
func openSocket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the socket: %w", err)
	}
	// A socket file that an earlier process left behind has no listener.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the former socket: %w", err)
	}
	// The socket gets its final name only after its mode denies access to other users.
	hidden := path + ".new"
	if err := os.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the former socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the kubelet: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		ln.Close()
		return nil, fmt.Errorf("listen for the kubelet: %w", err)
	}
	return ln, nil
}

// serve handles admission requests until ctx ends.
func (a *admissions) serve(ctx context.Context, ln net.Listener, log *slog.Logger) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var asking sync.WaitGroup
	defer asking.Wait()
	free := make(chan struct{}, maxRequests)
	wait := minAcceptDelay
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := ln.Accept()
		if err != nil {
			<-free
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, net.ErrClosed):
				return fmt.Errorf("wait for the kubelet: %w", err)
			}
			// Most likely there are no free file descriptors: retry after one may have been closed.
			log.Warn("accept connections of the kubelet", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, maxAcceptDelay)
			continue
		}
		wait = minAcceptDelay
		asking.Go(func() {
			defer func() { <-free }()
			defer c.Close()
			a.serveRequest(ctx, c)
		})
	}
}

// serveRequest reads one request and writes the response.
func (a *admissions) serveRequest(ctx context.Context, c net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, admitpod.Timeout)
	defer cancel()
	_ = c.SetDeadline(time.Now().Add(admitpod.Timeout + time.Second))
	var pod admitpod.Pod
	answer := admitpod.Answer{InEffect: true}
	line, err := bufio.NewReader(io.LimitReader(c, admitpod.MaxLine)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &pod)
	}
	if err == nil {
		err = a.request(ctx, pod)
	}
	if err != nil {
		answer = admitpod.Answer{Error: err.Error()}
	}
	if text, err := json.Marshal(answer); err == nil {
		_, _ = c.Write(append(text, '\n')) // a client that does not get the response repeats the request
	}
}
