// Package credential finds the credentials for registries that a node has for all of its pods: those in the kubelet's
// own config.json, and those that credential provider plugins give. What pods bring themselves, in pull secrets, is not
// its concern. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/.
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

// Node has a node's credentials.
type Node struct {
	file    string
	plugins []*plugin
	log     *slog.Logger
}

// Options say where a node's credentials come from.
type Options struct {
	RootDir string // of the kubelet; config.json there is as Docker has it
	Config  string // file of a CredentialProviderConfig; empty means no plugins
	BinDir  string // folder of the plugins
	Log     *slog.Logger
}

// New reads the configuration of plugins. It starts none.
func New(o Options) (*Node, error) {
	n := &Node{file: filepath.Join(o.RootDir, "config.json"), log: o.Log}
	if o.Config == "" {
		return n, nil
	}
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of credential providers: %w", err)
	}
	if n.plugins, err = plugins(text, o.BinDir); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Config, err)
	}
	return n, nil
}

// Lookup returns the node's credentials to try for an image: those of its own file, and then what each plugin answers.
// A source that fails is logged and left out.
func (n *Node) Lookup(ctx context.Context, name image.Name) []image.Credential {
	if n == nil {
		return nil
	}
	auths, err := n.own()
	found, err := lookup(name, auths, err)
	if err != nil {
		n.log.Warn("read credentials of registries", "file", n.file, "error", err)
	}
	for _, p := range n.plugins {
		if !p.wants(name) {
			continue
		}
		auths, err := p.ask(ctx, name)
		more, err := lookup(name, auths, err)
		if err != nil {
			n.log.Warn("ask a credential provider", "provider", p.name, "image", name.String(), "error", err)
		}
		found = append(found, more...)
	}
	return found
}

// lookup returns the credentials of a Docker configuration for an image, unless reading it failed.
func lookup(name image.Name, auths map[string]image.Auth, err error) ([]image.Credential, error) {
	if err != nil {
		return nil, err
	}
	ring, err := image.NewNodeKeyring(auths)
	if err != nil {
		return nil, err
	}
	return ring.Lookup(name), nil
}

// own returns what the kubelet's config.json has. It is read anew each time, and may be missing.
func (n *Node) own() (map[string]image.Auth, error) {
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
		return nil, errors.New("it is no Docker configuration") // an error of the decoder may show a password
	}
	return file.Auths, nil
}
