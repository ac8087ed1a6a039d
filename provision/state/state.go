// Package state stores what must outlive a run and exists nowhere else: the machines of the cluster and how to reach
// them, the authorities' keys (encrypted), how store members first started, and the applied objects. The state is in a
// directory beside the configuration.
package state

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
)

// DirName is the name of the state's directory, beside the configuration.
const DirName = ".clusterctl"

const formatVersion = 1

// State is a cluster's state.
type State struct {
	Version  int                `json:"version"`
	Serial   int64              `json:"serial"` // increases with every write
	Cluster  string             `json:"cluster"`
	Token    string             `json:"token"` // distinguishes this store's members from other etcd clusters
	Machines map[string]Machine `json:"machines"`
	Etcd     map[string]Member  `json:"etcd"` // by machine name
	// EtcdCluster is the store's cluster ID. It distinguishes the data of a former member from that of another cluster.
	EtcdCluster string `json:"etcdCluster,omitempty"`
	// FormerStores are the store's cluster IDs before restores. Data with these IDs is outdated.
	FormerStores []string `json:"formerStores,omitempty"`
	// Revision is the revision at which the store began at its last restore. The next restore must begin above all
	// revisions since.
	Revision int64 `json:"revision,omitempty"`
	// Restore is a restore of the store that is not complete.
	Restore *Restore          `json:"restore,omitempty"`
	Objects []Object          `json:"objects"` // applied objects, which are pruned when they are no longer declared
	CAs     map[string][]byte `json:"cas"`     // certificates in PEM
	// Rotations are the authorities, and the service account key, that are being replaced.
	Rotations map[string]Rotation `json:"rotations,omitempty"`
	// Releases are the releases of the cluster, oldest first.
	Releases []host.Release `json:"releases,omitempty"`
	// Fixed holds the settings of the cluster that cannot change.
	Fixed Fixed `json:"fixed,omitzero"`
	// Revoked certificates are refused until they expire.
	Revoked []certs.Revoked `json:"revoked,omitempty"`
	// Renewals are requested renewals of certificates that not all machines have confirmed yet.
	Renewals []Renewal `json:"renewals,omitempty"`
	// Exposed are keys that were on machines which have left the control plane.
	Exposed []Exposed `json:"exposed,omitempty"`
	Sealed  []byte    `json:"sealed"` // keys, encrypted with age

	Keys Keys `json:"-"` // the decrypted content of Sealed

	sealedDigest [sha256.Size]byte // digest of the input of Sealed
}

// Renewal requests that certificates which were issued before Since are renewed.
type Renewal struct {
	Names    []string  `json:"names"`              // as certificate.Name of provision/run returns them, or "all"
	Machines []string  `json:"machines,omitempty"` // addresses or names; empty means all machines
	Since    time.Time `json:"since"`
}

// Fixed holds settings that running pods, services and certificates depend on, so that they cannot change.
type Fixed struct {
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	Domain       string         `json:"domain,omitempty"`
	// Settings are the daemons' fixed settings, such as controllers.node_cidr_mask_size.
	Settings map[string]string `json:"settings,omitempty"`
}

// FixedOf returns the fixed settings of a configuration.
func FixedOf(c *config.Cluster) Fixed {
	return Fixed{PodCIDRs: c.PodCIDRs, ServiceCIDRs: c.ServiceCIDRs, Domain: c.Domain, Settings: c.FixedSettings()}
}

// Machine is a machine as last applied.
type Machine struct {
	Machine   config.Machine `json:"machine"`
	HasJoined bool           `json:"joined"` // everything was applied at least once
	// Identity is the identity of the installation, as in host.Facts.
	Identity string `json:"identity,omitempty"`
	// Origin is the identity that the provider ID is made of, if it is not Identity: new host keys do not make it
	// another machine.
	Origin string `json:"origin,omitempty"`
	// IsCordoned means that a run has cordoned the node and must uncordon it.
	IsCordoned bool `json:"cordoned,omitempty"`
	// Issued are the certificates that the machine received, by the label of their step, to be revoked when it is
	// removed.
	Issued map[string]certs.Revoked `json:"issued,omitempty"`
	// Release is the confirmed release; nil means unknown. Failed is an update that was rolled back since.
	Release *host.Release `json:"release,omitempty"`
	Failed  *FailedUpdate `json:"failed,omitempty"`
}

// FailedUpdate is an update of a machine that was rolled back.
type FailedUpdate struct {
	To     host.Release `json:"to"`
	At     time.Time    `json:"at"`
	Reason string       `json:"why"`
}

// maxReleases is how many releases the state remembers.
const maxReleases = 50

// RecordRelease records that the cluster has had a release. If versions cannot be ordered, the earlier entry is the
// older release.
func (s *State) RecordRelease(r host.Release) {
	if slices.ContainsFunc(s.Releases, func(h host.Release) bool { return h.Build == r.Build }) {
		return
	}
	s.Releases = append(s.Releases, r)
	s.Releases = s.Releases[max(0, len(s.Releases)-maxReleases):]
}

// Member describes how a store member first started. Its flags never change afterwards. A joining member gets its
// initial cluster from the store, and InitialCluster is empty; earlier releases set it when they planned.
type Member struct {
	InitialCluster string `json:"initialCluster,omitempty"`
	Existing       bool   `json:"existing"`
}

// Restore is a restore of the store in progress.
type Restore struct {
	Snapshot string    `json:"snapshot"` // the source, as described to users
	Machine  string    `json:"machine"`  // name of the machine whose member is made first
	Began    time.Time `json:"began"`
	// HasFirstMember means that the first member has its data. A normal apply can do the rest.
	HasFirstMember bool `json:"laid,omitempty"`
}

// Object is an API object that was applied.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Address    string `json:"address"`
	// IsProtected means that the object may not be deleted until it has been applied without prevent_destroy.
	IsProtected bool `json:"protected,omitempty"`
}

// FullName returns namespace/name, or only the name.
func (o Object) FullName() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// IsSame reports whether two entries are the same object, whatever their blocks and API versions.
func (o Object) IsSame(other Object) bool { return o.Identity() == other.Identity() }

// Identity returns the fields that IsSame compares, with the API group in APIVersion.
func (o Object) Identity() Object {
	return Object{APIVersion: apiGroup(o.APIVersion), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

func apiGroup(apiVersion string) string {
	name, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return ""
	}
	return name
}

// Keys are the secrets of the cluster.
type Keys struct {
	CAs            map[string][]byte `json:"cas"` // private keys in PEM
	ServiceAccount []byte            `json:"serviceAccount"`
	ServicePublic  []byte            `json:"servicePublic"`
	Encryption     Encryption        `json:"encryption,omitzero"` // keys of values in the store
	// Next are private keys that will sign, by the name of their rotation.
	Next map[string][]byte `json:"next,omitempty"`
	// Secrets are the sensitive values that applied objects and files may contain. A change that removes one must not
	// show it.
	Secrets []string `json:"secrets,omitempty"`
}

// RevocationLists returns the revocation list of each authority with clients, in DER. The authority that signs now has
// signed them, which all machines trust. Certificates of a former authority are included, because random serial numbers
// do not collide.
func (s *State) RevocationLists(now time.Time) (map[string][]byte, error) {
	lists := map[string][]byte{}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA} {
		var own []certs.Revoked
		for _, r := range s.Revoked {
			if r.CA == name {
				own = append(own, r)
			}
		}
		list, err := certs.RevocationList(s.CA(name), own, now)
		if err != nil {
			return nil, err
		}
		lists[name] = list
	}
	return lists, nil
}

// Revoke records that certificates are revoked.
func (s *State) Revoke(list ...certs.Revoked) {
	for _, r := range list {
		if !slices.ContainsFunc(s.Revoked,
			func(current certs.Revoked) bool { return current.CA == r.CA && current.Serial == r.Serial }) {
			s.Revoked = append(s.Revoked, r)
		}
	}
}

// New returns the state of a new cluster.
func New(cluster string, authorities func() (map[string]certs.Pair, error)) (*State, error) {
	s := &State{
		Version:  formatVersion,
		Cluster:  cluster,
		Machines: map[string]Machine{},
		Etcd:     map[string]Member{},
		CAs:      map[string][]byte{},
	}
	s.Keys.CAs = map[string][]byte{}
	if err := s.NewToken(); err != nil {
		return nil, err
	}
	pairs, err := authorities()
	if err != nil {
		return nil, err
	}
	for name, p := range pairs {
		s.CAs[name], s.Keys.CAs[name] = p.Cert, p.Key
	}
	s.Keys.ServiceAccount, s.Keys.ServicePublic, err = certs.NewKey()
	return s, err
}

// NewToken makes members that are created from now on belong to a new store.
func (s *State) NewToken() error {
	token := make([]byte, 8)
	if _, err := rand.Read(token); err != nil {
		return err
	}
	s.Token = hex.EncodeToString(token)
	return nil
}

// Store reads and writes the state in a directory.
type Store struct {
	Dir    string
	Sealer Sealer
	Lock   *Lock // the writer's lock; nil for readers, and if there can be no other writer
}

// Held returns ErrLost if another run has taken over the lock.
func (s Store) Held() error {
	if s.Lock == nil {
		return nil
	}
	return s.Lock.Held()
}

// Read returns the state, or nil if there is none.
func (s Store) Read() (*State, error) {
	state, err := s.readSealed()
	if err != nil || state == nil {
		return nil, err
	}
	plain, err := s.Sealer.Open(state.Sealed)
	if err != nil {
		return nil, fmt.Errorf("open the keys in %s: %w. Bring that key here; if it is lost, clusterctl state rebuild "+
			"rebuilds the state", s.path(), err)
	}
	if err := json.Unmarshal(plain, &state.Keys); err != nil {
		return nil, fmt.Errorf("read the keys in %s: %w", s.path(), err)
	}
	state.sealedDigest = s.Sealer.digest(plain)
	state.initMaps()
	return state, nil
}

// readSealed returns the state without its keys, or nil if there is none.
func (s Store) readSealed() (*State, error) {
	text, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	state := &State{}
	if err := json.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("read the state %s: %w. The last ten are in %s; with none, clusterctl state "+
			"rebuild creates it again", s.path(), err, filepath.Join(s.Dir, versionsFolder))
	}
	if state.Version != formatVersion {
		return nil, fmt.Errorf("the state %s has format %d, this clusterctl knows format %d", s.path(), state.Version,
			formatVersion)
	}
	return state, nil
}

// Clone returns a copy of a state. Changes of the copy's machines, members and keys do not change s.
func (s *State) Clone() *State {
	copied := *s
	copied.Machines, copied.Etcd, copied.CAs = maps.Clone(s.Machines), maps.Clone(s.Etcd), maps.Clone(s.CAs)
	copied.Rotations, copied.Keys.CAs, copied.Keys.Next = maps.Clone(s.Rotations), maps.Clone(s.Keys.CAs),
		maps.Clone(s.Keys.Next)
	copied.Objects = slices.Clone(s.Objects)
	if s.Restore != nil {
		restore := *s.Restore
		copied.Restore = &restore
	}
	return &copied
}

// initMaps replaces nil maps by empty ones.
func (s *State) initMaps() {
	if s.Machines == nil {
		s.Machines = map[string]Machine{}
	}
	if s.Etcd == nil {
		s.Etcd = map[string]Member{}
	}
	if s.CAs == nil {
		s.CAs = map[string][]byte{}
	}
	if s.Keys.CAs == nil {
		s.Keys.CAs = map[string][]byte{}
	}
}

// Write writes the state atomically. It fails if the lock is lost.
func (s Store) Write(state *State) error {
	if err := s.Held(); err != nil {
		return err
	}
	plain, err := json.Marshal(state.Keys)
	if err != nil {
		return err
	}
	if as := s.Sealer.digest(plain); as != state.sealedDigest { // keys change less often than machines
		if state.Sealed, err = s.Sealer.Seal(plain); err != nil {
			return fmt.Errorf("seal the keys: %w", err)
		}
		state.sealedDigest = as
	}
	state.Serial++
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("make the state's folder: %w", err)
	}
	f, err := os.CreateTemp(s.Dir, ".state-*")
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path())
	}
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// Remove deletes the state of a destroyed cluster.
func (s Store) Remove() error {
	if err := s.Held(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.Dir, kubeconfigsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // the kubeconfigs' authority no longer exists
	}
	return os.Remove(s.path())
}

func (s Store) path() string { return filepath.Join(s.Dir, "state.json") }
