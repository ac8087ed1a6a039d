package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"clusterctl/certs"
)

// devFiles are the certificates and kubeconfigs of a development cluster. They are created once per data directory,
// except those that depend on the port.
type devFiles struct {
	dir, server, admin string
	ca                 certs.Pair
}

func (f devFiles) path(name string) string { return filepath.Join(f.dir, name) }

func writeDevFiles(data string, port int, admin string) (devFiles, error) {
	f := devFiles{dir: filepath.Join(data, "pki"), server: fmt.Sprintf("https://127.0.0.1:%d", port), admin: admin}
	if f.admin == "" {
		f.admin = filepath.Join(data, "kubeconfig")
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return f, err
	}
	var err error
	if f.ca, err = f.authority("ca", certs.ClusterCA); err != nil {
		return f, err
	}
	etcd, err := f.authority("etcd-ca", certs.EtcdCA)
	if err != nil {
		return f, err
	}
	proxies, err := f.authority("front-proxy-ca", certs.FrontProxyCA)
	if err != nil {
		return f, err
	}
	if _, err := os.Stat(f.path("sa.key")); errors.Is(err, fs.ErrNotExist) {
		private, public, err := certs.NewKey()
		if err != nil {
			return f, err
		}
		if err := errors.Join(writePrivateFile(f.path("sa.pub"), public),
			writePrivateFile(f.path("sa.key"), private)); err != nil {
			return f, err
		}
	}
	for _, leaf := range []struct {
		name    string
		ca      certs.Pair
		request certs.Request
	}{
		{"apiserver", f.ca, certs.APIServer("cluster.local", "10.96.0.1", nil)},
		{"apiserver-etcd-client", etcd, certs.APIServerEtcdClient()},
		{"apiserver-kubelet-client", f.ca, certs.APIServerKubeletClient()},
		{"etcd", etcd, certs.EtcdPeer("dev", nil)},
		{"front-proxy-client", proxies, certs.FrontProxyClient()},
		{"metrics-server", f.ca, certs.MetricsServer(nil)},
	} {
		pair, err := certs.Issue(leaf.ca, leaf.request, time.Now())
		if err != nil {
			return f, err
		}
		if err := errors.Join(writePrivateFile(f.path(leaf.name+".crt"), pair.Cert),
			writePrivateFile(f.path(leaf.name+".key"), pair.Key)); err != nil {
			return f, err
		}
	}
	return f, errors.Join(f.kubeconfig(f.admin, "admin", certs.SuperAdmin()),
		f.kubeconfig(f.path("controller-manager.conf"), "controller-manager", certs.Daemon("kube-controller-manager")),
		f.kubeconfig(f.path("metrics-server.conf"), "metrics-server", certs.Replica("metrics-server", "dev")),
		f.kubeconfig(f.path("scheduler.conf"), "scheduler", certs.Daemon("kube-scheduler")))
}

func (f devFiles) kubeconfig(path, user string, request certs.Request) error {
	pair, err := certs.Issue(f.ca, request, time.Now())
	if err != nil {
		return err
	}
	text, err := certs.Kubeconfig("dev", f.server, user, f.ca.Cert, pair)
	if err != nil {
		return err
	}
	return writePrivateFile(path, text)
}

// authority returns the CA with a file name, and creates it if it is missing.
func (f devFiles) authority(name, kind string) (certs.Pair, error) {
	cert, errCert := os.ReadFile(f.path(name + ".crt"))
	key, errKey := os.ReadFile(f.path(name + ".key"))
	if errCert == nil && errKey == nil {
		return certs.Pair{Cert: cert, Key: key}, nil
	}
	pair, err := certs.NewCA(certs.CommonNames[kind], 0, time.Now())
	if err != nil {
		return pair, err
	}
	return pair, errors.Join(writePrivateFile(f.path(name+".key"), pair.Key),
		writePrivateFile(f.path(name+".crt"), pair.Cert))
}

// writePrivateFile atomically replaces a file, readable only by its owner.
func writePrivateFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
