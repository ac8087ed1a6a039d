package role

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"clusterctl/certs"
	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Remains is what a machine's files reveal about its cluster. A lost state is rebuilt from it. Only machines of the
// control plane have keys.
type Remains struct {
	// Name is the name of the node and of the store member. It is empty if the machine has nothing of a cluster.
	Name    string            `json:"name,omitempty"`
	Roles   []string          `json:"roles,omitempty"`   // as last applied
	CAs     map[string][]byte `json:"cas,omitempty"`     // the authorities that sign, if their keys are there
	Trusted map[string][]byte `json:"trusted,omitempty"` // all trusted authorities, including former and next ones
	Keys    state.Keys        `json:"keys,omitzero"`
	// intermediate certificates in leaf certificates, by authority
	Intermediates map[string][]byte `json:"shown,omitempty"`
	Encryption    []byte            `json:"encryption,omitempty"` // the EncryptionConfiguration

	// FormerService holds trusted service account keys that do not sign.
	FormerService []byte                   `json:"formerService,omitempty"`
	Fixed         state.Fixed              `json:"fixed,omitzero"`
	Token         string                   `json:"token,omitempty"`
	Member        *state.Member            `json:"member,omitempty"`  // how its store member started
	Members       []host.Member            `json:"members,omitempty"` // members of the store, if it answers
	Issued        map[string]certs.Revoked `json:"issued,omitempty"`
	Revoked       []certs.Revoked          `json:"revoked,omitempty"`
}

// membersTimeout limits the request for the members, because the store may have no majority.
const membersTimeout = 5 * time.Second

// ReadRemains reads what a machine's files reveal about its cluster.
func ReadRemains(ctx context.Context, h host.Host) (Remains, error) {
	r := Remains{
		CAs:           map[string][]byte{},
		Trusted:       map[string][]byte{},
		Intermediates: map[string][]byte{},
		Issued:        map[string]certs.Revoked{},
	}
	r.Keys.CAs = map[string][]byte{}
	read := func(path string, into *[]byte) error {
		text, err := h.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		*into = text
		return err
	}
	for name := range certs.CommonNames {
		var cert, key []byte
		if err := errors.Join(read(PKI+"/"+name+".crt", &cert), read(PKI+"/"+name+".key", &key)); err != nil {
			return r, err
		}
		if cert != nil {
			r.Trusted[name] = cert
		}
		if cert != nil && key != nil {
			r.Keys.CAs[name] = key
			r.CAs[name] = signingChain(cert, key)
		}
	}
	if err := errors.Join(read(PKI+"/sa.key", &r.Keys.ServiceAccount), read(PKI+"/sa.pub", &r.Keys.ServicePublic),
		read(encryptionFile, &r.Encryption)); err != nil {
		return r, err
	}
	r.Keys.ServicePublic, r.FormerService = r.servicePublic()
	if err := r.readDaemons(h); err != nil {
		return r, err
	}
	if err := r.readCertificates(h); err != nil {
		return r, err
	}
	authorities := bytes.Join(slices.Collect(maps.Values(r.Trusted)), nil)
	for _, file := range []string{caCRL, etcdCRL, apiCRL} { // apiCRL also contains the lists of caCRL
		var text []byte
		if err := read(file, &text); err != nil {
			return r, err
		}
		if len(text) == 0 {
			continue
		}
		list, err := certs.Revocations(text, authorities)
		if err != nil {
			return r, fmt.Errorf("%s: %w", file, err)
		}
		for _, former := range list {
			if !slices.Contains(r.Revoked, former) {
				r.Revoked = append(r.Revoked, former)
			}
		}
	}
	if r.Member != nil {
		r.Members, _ = newStore("https://127.0.0.1:2379").Members(ctx, h, membersTimeout)
		// The machine's data is useful even if the store does not answer.
	}
	return r, nil
}

// signingChain returns the certificate in a PEM text that belongs to a key, followed by the certificates that sign it.
func signingChain(text, key []byte) (own []byte) {
	k, err := certs.ParseKey(key)
	if err != nil {
		return text
	}
	public, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return text
	}
	var by *x509.Certificate // the certificate found last
	for _, one := range certs.SplitPEM(text) {
		cert, err := certs.ParseCert(one)
		if err != nil {
			continue
		}
		if by == nil && bytes.Equal(cert.RawSubjectPublicKeyInfo, public) ||
			by != nil && !bytes.Equal(by.RawSubject, by.RawIssuer) && by.CheckSignatureFrom(cert) == nil {
			own, by = append(own, one...), cert
		}
	}
	return own
}

// Cross returns the cross-certificates in which the former authority signs the present one.
func (r Remains) Cross(name string) (cross []byte) {
	for _, one := range certs.SplitPEM(r.Intermediates[name]) {
		if !bytes.Contains(r.Trusted[name], one) {
			cross = append(cross, one...)
		}
	}
	return cross
}

// NonSigning returns the trusted certificates of an authority that do not sign.
func (r Remains) NonSigning(name string) (others []byte) {
	for _, one := range certs.SplitPEM(r.Trusted[name]) {
		if !bytes.Contains(r.CAs[name], one) {
			others = append(others, one...)
		}
	}
	return others
}

// servicePublic separates the public key of the service account key that signs from the others.
func (r Remains) servicePublic() (own, others []byte) {
	key, err := certs.ParseKey(r.Keys.ServiceAccount)
	if err != nil {
		return r.Keys.ServicePublic, nil
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return r.Keys.ServicePublic, nil
	}
	for block, rest := pem.Decode(r.Keys.ServicePublic); block != nil; block, rest = pem.Decode(rest) {
		if bytes.Equal(block.Bytes, public) {
			own = append(own, pem.EncodeToMemory(block)...)
		} else {
			others = append(others, pem.EncodeToMemory(block)...)
		}
	}
	return own, others
}

// readDaemons derives the roles and settings from the daemons' flags.
func (r *Remains) readDaemons(h host.Files) error {
	flags := map[string]map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-network", "kube-proxy"} {
		var err error
		if flags[name], err = flagsOf(h, name); err != nil {
			return err
		}
	}
	r.Name = flags["kube-network"]["hostname-override"]
	if flags["kube-apiserver"] != nil {
		r.Roles = append(r.Roles, config.RoleControlPlane)
	}
	if flags["kube-proxy"] != nil {
		r.Roles = append(r.Roles, config.RoleNode)
	}
	if etcd := flags["etcd"]; etcd != nil {
		r.Token = etcd["initial-cluster-token"]
		r.Member = &state.Member{
			InitialCluster: etcd["initial-cluster"],
			Existing:       etcd["initial-cluster-state"] == "existing",
		}
	}
	if flags["kube-apiserver"] == nil || flags["kube-controller-manager"] == nil {
		return nil
	}
	var err error
	// Flags with default values are not written.
	server, controllers := daemons.DefaultAPIServer(), daemons.DefaultControllerManager()
	if r.Fixed.ServiceCIDRs, err = prefixesIn(cmp.Or(flags["kube-apiserver"]["service-cluster-ip-range"],
		strings.Join(server.ServiceClusterIPRange, ","))); err != nil {
		return err
	}
	if r.Fixed.PodCIDRs, err = prefixesIn(cmp.Or(flags["kube-controller-manager"]["cluster-cidr"],
		strings.Join(controllers.ClusterCIDR, ","))); err != nil {
		return err
	}
	r.Fixed.Settings = map[string]string{}
	for _, s := range daemons.Settings(&controllers) {
		if s.Fixed != "" {
			r.Fixed.Settings["controllers."+s.Name] = cmp.Or(
				flags["kube-controller-manager"][strings.TrimPrefix(s.DaemonName, "--")],
				daemons.Text(s.Default),
			)
		}
	}
	r.Fixed.Domain = strings.TrimPrefix(cmp.Or(flags["kube-apiserver"]["service-account-issuer"],
		server.ServiceAccountIssuer), "https://kubernetes.default.svc.")
	return nil
}

func prefixesIn(text string) (list []netip.Prefix, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// flagsOf returns the flags of a daemon in a unit or a static pod that clusterctl wrote, or nil if there is none.
func flagsOf(h host.Files, name string) (map[string]string, error) {
	var args []string
	manifest, err := h.ReadFile(step.Manifest(name))
	switch {
	case err == nil:
		var pod corev1.Pod
		if err := yaml.Unmarshal(manifest, &pod); err != nil {
			return nil, fmt.Errorf("%s: %w", step.Manifest(name), err)
		}
		for _, c := range pod.Spec.Containers {
			args = append(args, c.Command...)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		unit, err := h.ReadFile(step.UnitDir + name + ".service")
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		_, command, _ := strings.Cut(string(unit), "\nExecStart=")
		command = strings.ReplaceAll(command, "\\\n", " ")
		command, _, _ = strings.Cut(command, "\n")
		for _, word := range strings.Fields(command) {
			args = append(args, strings.NewReplacer("%%", "%", "$$", "$").Replace(strings.Trim(word, `"`)))
		}
	}
	flags := map[string]string{}
	for _, arg := range args {
		if flag, value, ok := strings.Cut(arg, "="); ok {
			flags[strings.TrimLeft(flag, "-")] = value
		}
	}
	return flags, nil
}

// readCertificates lists the certificates issued to the machine, by the labels of the steps that write them.
func (r *Remains) readCertificates(h host.Files) error {
	note := func(label string, text []byte) {
		cert, err := certs.ParseCert(text)
		if err != nil || cert.IsCA {
			return
		}
		for name, authorities := range r.Trusted {
			if certs.SignedBy(cert, authorities) {
				if chain := certs.ChainOf(text); len(chain) > 0 {
					r.Intermediates[name] = chain
				}
				r.Issued[label] = certs.Revoked{
					CA:     name,
					Serial: cert.SerialNumber.Text(16),
					Name:   cert.Subject.CommonName,
					Until:  cert.NotAfter,
				}
			}
		}
	}
	for _, dir := range []string{Kubernetes, PKI, PKI + "/etcd"} {
		names, err := h.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			at := path.Join(dir, name)
			switch path.Ext(name) {
			case ".crt":
				text, err := h.ReadFile(at)
				if err != nil {
					return err
				}
				note((&step.Certificate{Path: strings.TrimSuffix(at, ".crt")}).Label(), text)
			case ".conf":
				text, err := h.ReadFile(at)
				if err != nil {
					return err
				}
				kubeconfig, err := clientcmd.Load(text)
				if err != nil {
					continue // an unreadable file is issued again
				}
				for _, user := range kubeconfig.AuthInfos {
					note((&step.Kubeconfig{Path: at}).Label(), user.ClientCertificateData)
				}
			}
		}
	}
	return nil
}
