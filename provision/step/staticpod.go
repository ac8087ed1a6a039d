package step

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// FilesMark is replaced in a static pod's manifest by the digest of the files that the pod reads. So the pod is
// replaced when one of them changes.
const FilesMark = "@FILES@"

// StaticPod runs a control-plane daemon as a static pod, and removes its unit.
type StaticPod struct {
	Name    string   `json:"name"`
	Path    string   `json:"path"`     // path of the manifest
	Content string   `json:"content"`  // the manifest, with FilesMark
	Files   []string `json:"files"`    // files whose change restarts the pod
	URL     string   `json:"url"`      // answers when the pod is ready
	Unit    string   `json:"unit"`     // the daemon's unit, which is removed
	UnitAt  string   `json:"unitPath"` // path of the unit's file
	host.Client
}

// Label names the pod.
func (s *StaticPod) Label() string { return "static pod " + s.Name }

func (s *StaticPod) content(h host.Host) (string, error) {
	sum := sha256.New()
	for _, p := range s.Files {
		text, err := h.ReadFile(p)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", p, len(text))
		_, _ = sum.Write(text)
	}
	return strings.ReplaceAll(s.Content, FilesMark, hex.EncodeToString(sum.Sum(nil))[:16]), nil
}

// Check compares the manifest, and checks whether the unit still exists.
func (s *StaticPod) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	c := Change{Kind: "pod", Name: "kube-system/" + s.Name}
	if _, err := h.Stat(s.UnitAt); err == nil {
		c.Action, c.Note = Create, "static pod instead of "+s.Unit
		return c, nil
	}
	old, err := h.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		c.Action, c.Note = Create, "static pod"
		return c, nil
	}
	if err != nil {
		return Change{}, err
	}
	want, err := s.content(h)
	if err != nil {
		return Change{}, err
	}
	switch touched := w.Touched(s.Files); {
	case len(touched) > 0:
		c.Action, c.Note = Update, "restart, for "+baseNames(touched)
	case string(old) != want:
		c.Action, c.Note, c.Diff = Update, "restart", Lines(string(old), want)
	default:
		return Change{}, nil
	}
	return c, nil
}

// Apply stops the running daemon, writes the manifest, and waits until the pod is ready.
func (s *StaticPod) Apply(ctx context.Context, h host.Host, w *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	if _, err := h.Stat(s.UnitAt); err == nil {
		if err := (&RemoveUnit{Name: s.Unit, Path: s.UnitAt}).Apply(ctx, h, w); err != nil {
			return err
		}
	}
	if err := (&RemoveStaticPod{Name: s.Name, Path: s.Path, URL: s.URL, Client: s.Client}).Apply(ctx, h,
		w); err != nil {
		return err
	}
	content, err := s.content(h)
	if err != nil {
		return err
	}
	if err := h.WriteFile(s.Path, bytes.NewReader([]byte(content)), 0o600, 0, 0); err != nil {
		return err
	}
	if err := retryUntil(ctx, func() error { return h.CheckURL(ctx, s.URL, s.Client) }); err != nil {
		return fmt.Errorf("the static pod %s is not ready (crictl ps -a and journalctl -u kubelet on the "+
			"machine say why): %w", s.Name, err)
	}
	return nil
}

const (
	podTimeout = 3 * time.Minute
	podPeriod  = 200 * time.Millisecond
)

// retryUntil calls try until it returns nil. It returns the last error when ctx ends.
func retryUntil(ctx context.Context, try func() error) error {
	tick := time.NewTicker(podPeriod)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// RemoveStaticPod stops a control-plane daemon that runs as a static pod.
type RemoveStaticPod struct {
	Name string `json:"name"`
	Path string `json:"path"`
	URL  string `json:"url"`
	host.Client
}

// Label names the pod.
func (s *RemoveStaticPod) Label() string { return "no static pod " + s.Name }

// Check checks whether the manifest exists.
func (s *RemoveStaticPod) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	_, err := h.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Change{}, nil
	}
	if err != nil {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "pod", Name: "kube-system/" + s.Name, Note: "stop"}, nil
}

// Apply removes the manifest and waits until the daemon no longer listens.
func (s *RemoveStaticPod) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	if err := h.RemoveAll(s.Path); err != nil {
		return err
	}
	if err := retryUntil(ctx, func() error {
		err := h.CheckURL(ctx, s.URL, s.Client)
		if errors.Is(err, host.ErrNothingListens) {
			return nil
		}
		return fmt.Errorf("%s still answers", s.URL)
	}); err != nil {
		return fmt.Errorf("stop the static pod %s (is the kubelet running?): %w", s.Name, err)
	}
	return nil
}

// ManifestDir is the directory of static pods' manifests.
const ManifestDir = "/etc/kubernetes/manifests/"

// Manifest returns the path of a static pod's manifest.
func Manifest(name string) string { return path.Join(ManifestDir, name+".yaml") }
