package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// repository is a Git repository that a server on loopback serves.
type repository struct {
	URL      string
	work     string // folder of the working tree
	bare     string
	server   *http.Server
	finished chan error
}

// startRepository starts a server of an empty repository below dir.
func startRepository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{work: filepath.Join(dir, "work"), bare: filepath.Join(dir, "served", "platform.git"),
		finished: make(chan error, 1)}
	if err := errors.Join(os.MkdirAll(r.work, 0o700), os.MkdirAll(filepath.Dir(r.bare), 0o700)); err != nil {
		return nil, err
	}
	if _, err := git(ctx, dir, "init", "--quiet", "--bare", "--initial-branch=main", r.bare); err != nil {
		return nil, err
	}
	if _, err := git(ctx, r.work, "init", "--quiet", "--initial-branch=main"); err != nil {
		return nil, err
	}
	programs, err := git(ctx, dir, "--exec-path")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.URL = "http://" + listener.Addr().String() + "/platform.git"
	r.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(programs), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.bare), "GIT_HTTP_EXPORT_ALL=1", "HOME=" + dir}}}
	go func() { r.finished <- r.server.Serve(listener) }()
	return r, nil
}

// close ends the server.
func (r *repository) close() error {
	err := r.server.Close()
	if served := <-r.finished; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// commit writes files, commits them and pushes the commit to a branch of the served repository.
func (r *repository) commit(ctx context.Context, branch string, files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(r.work, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"add", "--all"}, {"-c", "user.name=bench", "-c", "user.email=bench@example.com",
		"commit", "--quiet", "--message", "Change files"}, {"push", "--quiet", r.bare, "HEAD:refs/heads/" + branch}} {
		if _, err := git(ctx, r.work, args...); err != nil {
			return err
		}
	}
	return nil
}

// git runs git without the configuration of this machine's users.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}
