package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/hollow"
)

func TestUnsupportedSettingsAreRejected(t *testing.T) {
	for want, change := range map[string]func(*config.KubeletFile){
		"":        func(*config.KubeletFile) {},
		"podCIDR": func(f *config.KubeletFile) { f.PodCIDR = "10.0.0.0/24" },
		"shutdownGracePeriod": func(f *config.KubeletFile) {
			f.ShutdownGracePeriod.Duration = time.Second
		},
		"readOnlyPort": func(f *config.KubeletFile) { f.ReadOnlyPort = 10255 },
		"cgroupDriver": func(f *config.KubeletFile) { f.CgroupDriver = "systemd" },
		"imagePullCredentialsVerificationPolicy": func(f *config.KubeletFile) {
			f.ImagePullCredentialsVerificationPolicy = "Sometimes"
		},
		"preloadedImagesVerificationAllowlist: requires": func(f *config.KubeletFile) {
			f.PreloadedImagesVerificationAllowlist = []string{"a"}
		},
		"preloadedImagesVerificationAllowlist: \"a/b:1\"": func(f *config.KubeletFile) {
			f.ImagePullCredentialsVerificationPolicy,
				f.PreloadedImagesVerificationAllowlist = config.VerifyAllButAllowed,
				[]string{"registry:5000/a/*", "a", "a/b:1"}
		},
		"authorization.mode": func(f *config.KubeletFile) { f.Authorization.Mode = "other" },
		"kind":               func(f *config.KubeletFile) { f.Kind = "KubeProxyConfiguration" },
		"serverTLSBootstrap": func(f *config.KubeletFile) { f.ServerTLSBootstrap, f.TLSCertFile = true, "kubelet.crt" },
	} {
		f := config.DefaultKubeletFile()
		change(&f)
		if err := checkSettings(&f); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
}

func TestKernelSettingsMustHaveTheDefaults(t *testing.T) {
	sys := t.TempDir()
	for _, d := range kernelDefaults {
		path := filepath.Join(sys, d.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(d.want+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkKernel(sys); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "kernel/panic"), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkKernel(sys); err == nil ||
		!strings.Contains(err.Error(), "kernel/panic, expected value: 10, actual value: 0") {
		t.Errorf("got %v", err)
	}
}

// slowRegistry is a registry that records how many images are pulled concurrently.
type slowRegistry struct {
	*hollow.Runtime
	running, maxRunning atomic.Int32
	release             chan struct{}
}

func (s *slowRegistry) PullImage(
	ctx context.Context,
	name string,
	auth *criapi.AuthConfig,
	box *criapi.PodSandboxConfig,
) (string, error) {
	if n := s.running.Add(1); n > s.maxRunning.Load() {
		s.maxRunning.Store(n)
	}
	<-s.release
	defer s.running.Add(-1)
	return s.Runtime.PullImage(ctx, name, auth, box)
}

func TestImagesArePulledSeriallyWhenConfigured(t *testing.T) {
	for _, serial := range []bool{true, false} {
		s := &slowRegistry{Runtime: &hollow.Runtime{}, release: make(chan struct{})}
		q := newPuller(s, serial)
		done := make(chan error, 2)
		for _, image := range []string{"a", "b"} {
			go func() {
				_, err := q.pull(t.Context(), image, nil, nil)
				done <- err
			}()
		}
		if !serial {
			for s.running.Load() < 2 {
				time.Sleep(time.Millisecond)
			}
		}
		for range 2 {
			s.release <- struct{}{}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if maximum := s.maxRunning.Load(); serial != (maximum == 1) {
			t.Errorf("serial %v: %d at once", serial, maximum)
		}
	}
}
