// Package credential finds the registry credentials that a node has for all of its pods: those in the kubelet's own
// config.json, and those from credential provider plugins. It does not handle the pull secrets of pods. See
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/.
package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"clusterctl/daemons/kubelet/image"
)

// Node holds the registry credentials of a node. A nil Node has none.
type Node struct {
	file    string
	plugins []*plugin
	log     *slog.Logger
}

// Options configures the sources of a node's credentials.
type Options struct {
	RootDir string // the kubelet's directory; its config.json has Docker's format
	Config  string // CredentialProviderConfig file; empty: no plugins
	BinDir  string // directory of the plugins
	Log     *slog.Logger
}

// New reads the plugin configuration. It does not run any plugin.
func New(o Options) (*Node, error) {
	n := &Node{file: filepath.Join(o.RootDir, "config.json"), log: o.Log}
	if o.Config == "" {
		return n, nil
	}
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
	}
	if n.plugins, err = parsePlugins(text, o.BinDir); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Config, err)
	}
	return n, nil
}

// Lookup returns the node's credentials to try for an image: first those in config.json, then those from each plugin. A
// source that fails is logged and skipped.
func (n *Node) Lookup(ctx context.Context, name image.Name) []image.Credential {
	if n == nil {
		return nil
	}
	auths, err := n.readConfig()
	found, err := lookupIn(name, auths, err)
	if err != nil {
		n.log.Warn("read registry credentials", "file", n.file, "error", err)
	}
	for _, p := range n.plugins {
		if !p.isFor(name) {
			continue
		}
		auths, err := p.credentials(ctx, name)
		more, err := lookupIn(name, auths, err)
		if err != nil {
			n.log.Warn("get credentials from a plugin", "provider", p.name, "image", name.String(), "error", err)
		}
		found = append(found, more...)
	}
	return found
}

// lookupIn returns the credentials for an image in a Docker configuration. It returns err if err is not nil.
func lookupIn(name image.Name, auths map[string]image.Auth, err error) ([]image.Credential, error) {
	if err != nil {
		return nil, err
	}
	ring, err := image.NewNodeKeyring(auths)
	if err != nil {
		return nil, err
	}
	return ring.Lookup(name), nil
}

// readConfig returns the content of the kubelet's config.json. It reads the file on every call. A missing file has no
// credentials.
func (n *Node) readConfig() (map[string]image.Auth, error) {
	text, err := os.ReadFile(n.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		Auths map[string]image.Auth `json:"auths"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		// The decoder's error may contain a password.
		return nil, errors.New("not a valid Docker configuration")
	}
	return file.Auths, nil
}
