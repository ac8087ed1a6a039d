package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// mergeKubeconfig adds a kubeconfig with one cluster and one user to a file, and makes its context the current one. It
// keeps all other content, and locks the file as kubectl does.
func mergeKubeconfig(path string, text []byte) error {
	added, err := clientcmd.Load(text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL, 0)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another process is changing it: if none is, remove %s.lock", path)
	}
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(lock.Close(), os.Remove(path+".lock")) }()
	config := clientcmdapi.NewConfig()
	if before, err := os.ReadFile(path); err == nil && len(bytes.TrimSpace(before)) > 0 {
		if config, err = clientcmd.Load(before); err != nil {
			return fmt.Errorf("it is not a kubeconfig: %w", err)
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := mergeInto(config, added); err != nil {
		return err
	}
	merged, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeKubeconfig(path, merged)
}

// mergeInto adds the current context of one kubeconfig to another. The user gets the context's name, because
// kubernetes-admin may already be the user of another cluster.
func mergeInto(config, added *clientcmdapi.Config) error {
	context := added.Contexts[added.CurrentContext]
	cluster, user := added.Clusters[context.Cluster], added.AuthInfos[context.AuthInfo]
	if current := config.Clusters[context.Cluster]; current != nil && current.Server != cluster.Server &&
		!hasCommonCertificate(current.CertificateAuthorityData, cluster.CertificateAuthorityData) {
		return fmt.Errorf("it has another cluster that is called %s, at %s: write to a file of its own with -output, "+
			"and name both in KUBECONFIG", context.Cluster, current.Server)
	}
	config.Clusters[context.Cluster] = cluster
	config.AuthInfos[added.CurrentContext] = user
	context = context.DeepCopy()
	context.AuthInfo = added.CurrentContext
	if current := config.Contexts[added.CurrentContext]; current != nil {
		context.Namespace = current.Namespace
	}
	config.Contexts[added.CurrentContext] = context
	config.CurrentContext = added.CurrentContext
	return nil
}

// hasCommonCertificate reports whether two PEM texts have a certificate in common.
func hasCommonCertificate(a, b []byte) bool {
	for _, block := range bytes.SplitAfter(a, []byte("-----END CERTIFICATE-----")) {
		if block = bytes.TrimSpace(block); len(block) > 0 && bytes.Contains(b, block) {
			return true
		}
	}
	return false
}
