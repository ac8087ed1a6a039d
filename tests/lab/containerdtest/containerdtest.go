// Package containerdtest gives tests their own containerd, from the bundle or from the distribution, with separate
// directories, network namespace and images. It is only for tests, and needs root.
package containerdtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const insideEnv = "CONTAINERDTEST_INSIDE"

var runtimeFolder = flag.String("runtime", "",
	"a folder below bin with containerd 1, its shim and runc, as distributions have them; the bundle's when empty")

// Main runs a package's tests in new network and mount namespaces. TestMain calls it.
func Main(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
			fmt.Fprintln(os.Stderr, "bring up loopback:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), insideEnv+"=1")
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGTERM,
	}
	err := self.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "these tests need root, for namespaces of their own:", err)
		os.Exit(1)
	}
}

// Containerd is a running containerd.
type Containerd struct {
	Dir      string
	Endpoint string // unix:///…
	Busybox  string // an image with busybox and links for its commands
	Bin      string // directory of the bundle
	// IsDistribution means that containerd is not the bundle's.
	IsDistribution bool

	programs string // directory of containerd, its shim and runc
	config   string
	cmd      *exec.Cmd
}

// Start starts a containerd that ends with the test.
func Start(t *testing.T) *Containerd {
	t.Helper()
	dir, err := os.MkdirTemp("", "containerdtest")
	if err != nil {
		t.Fatal(err)
	}
	c := &Containerd{Dir: dir, Endpoint: "unix://" + dir + "/containerd.sock", Bin: bundleDir(t)}
	c.programs = c.Bin
	configText := configV3
	if *runtimeFolder != "" {
		c.programs, c.IsDistribution = filepath.Join(c.Bin, *runtimeFolder), true
		configText = configV2
	}
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	host := strings.TrimPrefix(images.URL, "http://")
	c.Busybox = host + "/busybox:1"
	pushBusybox(t, c.Busybox, nil)
	pushBusybox(t, host+"/pause:1", []string{"/bin/sleep", "1000000"})
	c.config = filepath.Join(dir, "config.toml")
	text := fmt.Sprintf(configText, dir, c.Bin, host)
	if err := os.WriteFile(c.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	network := filepath.Join(dir, "net.d")
	if err := os.MkdirAll(network, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(network, "10-test.conflist"),
		[]byte(strings.ReplaceAll(networkText, "DATADIR", dir+"/ipam")), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Run(t)
	t.Cleanup(func() {
		c.Stop()
		if t.Failed() {
			if out, err := os.ReadFile(filepath.Join(dir, "containerd.log")); err == nil {
				t.Logf("containerd said: %s", out[max(0, len(out)-4000):])
			}
		}
		unmountAll(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// unmountAll removes all mounts below a directory. They exist only in this process' mount namespace.
func unmountAll(dir string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if fields := strings.Fields(lines[i]); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
}

// Run starts the process, for the first time or after Stop.
func (c *Containerd) Run(t *testing.T) {
	t.Helper()
	out, err := os.OpenFile(filepath.Join(c.Dir, "containerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.cmd = exec.Command(filepath.Join(c.programs, "containerd"), "-c", c.config)
	c.cmd.Env = append(os.Environ(), "PATH="+c.programs+":"+os.Getenv("PATH"))
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	socket := strings.TrimPrefix(c.Endpoint, "unix://")
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("containerd did not come up")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Stop ends the process. Containers keep running.
func (c *Containerd) Stop() {
	if c.cmd != nil {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		_ = c.cmd.Wait()
		c.cmd = nil
	}
}

// bundleDir returns the directory with the built bundle.
func bundleDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			bin := filepath.Join(dir, "bin")
			if _, err := os.Stat(filepath.Join(bin, "containerd")); err != nil {
				t.Fatal("bin/containerd is not there: run make build first")
			}
			return bin
		}
	}
	t.Fatal("the test does not run inside the repository")
	return ""
}

// pushBusybox puts a busybox image into the registry.
func pushBusybox(t *testing.T, ref string, command []string) {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("the static busybox is needed (package busybox-static): %v", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"bin/", "etc/", "tmp/", "dev/", "proc/", "sys/", "root/", "var/"} {
		add(tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, busybox)
	for _, command := range []string{"sh", "sleep", "cat", "ls", "echo", "true", "false", "id", "env", "wget", "nc",
		"httpd", "ip", "nslookup", "mount", "ps", "hostname", "kill", "touch", "stat"} {
		add(tar.Header{Name: "bin/" + command, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.NoCompression), // compressing takes seconds under the race detector
	)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.Config(image, v1.Config{Entrypoint: command, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	uploadImage(t, ref, image)
}

// uploadImage puts an image into a registry.
func uploadImage(t *testing.T, ref string, image v1.Image) {
	t.Helper()
	host, rest, _ := strings.Cut(ref, "/")
	repository, tag, _ := strings.Cut(rest, ":")
	base := "http://" + host + "/v2/" + repository
	send := func(method, url, kind string, data []byte) {
		r, err := http.NewRequest(method, url, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %s", method, url, answer.Status)
		}
	}
	blob := func(data []byte) {
		send(http.MethodPost, fmt.Sprintf("%s/blobs/uploads/?digest=sha256:%x", base, sha256.Sum256(data)),
			"application/octet-stream", data)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		blob(data)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	blob(config)
	manifest, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := image.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	send(http.MethodPut, base+"/manifests/"+tag, string(kind), manifest)
}

// configV3 is the configuration of containerd 2.
const configV3 = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[1]s/containerd.sock"
[ttrpc]
  address = "%[1]s/containerd.sock.ttrpc"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["%[2]s/cni"]
    conf_dir = "%[1]s/net.d"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "%[3]s/pause:1"
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"
`

// configV2 is the configuration of containerd 1.
const configV2 = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[1]s/containerd.sock"
[ttrpc]
  address = "%[1]s/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "%[3]s/pause:1"
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%[2]s/cni"
    conf_dir = "%[1]s/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

const networkText = `{"cniVersion":"1.0.0","name":"test","plugins":[
 {"type":"podlink","ipam":{"type":"host-local","dataDir":"DATADIR","ranges":[[{"subnet":"10.77.0.0/24"}]]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
`
