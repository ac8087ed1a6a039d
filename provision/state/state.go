// Package state is what must outlive a run and is nowhere else: which machines were
// made part of the cluster and how they are reached, the authorities' keys
// (encrypted), how etcd's members first started, and which objects were applied. It
// lives in a folder beside the configuration.
package state

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

// Folder is the state's folder, beside the configuration.
const Folder = ".clusterctl"

const formatVersion = 1

// State is a cluster's state.
type State struct {
	Version  int                `json:"version"`
	Serial   int64              `json:"serial"` // goes up with every write
	Cluster  string             `json:"cluster"`
	Token    string             `json:"token"` // keeps etcd clusters apart
	Machines map[string]Machine `json:"machines"`
	Etcd     map[string]Member  `json:"etcd"` // by machine name
	// EtcdCluster is the id that etcd has given the store: by it the data of a former
	// member is known from another cluster's.
	EtcdCluster string `json:"etcdCluster,omitempty"`
	// FormerStores are the ids that the store had before it was restored: data of theirs is of the past.
	FormerStores []string `json:"formerStores,omitempty"`
	// Revision is where the revisions of the store began when it was last restored: those of the next time begin above
	// what it had since.
	Revision int64 `json:"revision,omitempty"`
	// Restore is a restore of the store that has begun and not come to its end.
	Restore *Restore          `json:"restore,omitempty"`
	Objects []Object          `json:"objects"` // applied, so to be pruned when no longer declared
	CAs     map[string][]byte `json:"cas"`     // certificates, PEM
	// Rotations are the authorities, and the key of service accounts, that are being replaced.
	Rotations map[string]Rotation `json:"rotations,omitempty"`
	// Releases are those that the cluster has had, the first one first.
	Releases []host.Release `json:"releases,omitempty"`
	// Fixed is what the cluster was made with and cannot change.
	Fixed Fixed `json:"fixed,omitzero"`
	// Revoked certificates are refused everywhere until they end by themselves.
	Revoked []certs.Revoked `json:"revoked,omitempty"`
	// Renewals are requested renewals of certificates that not all machines have confirmed yet.
	Renewals []Renewal `json:"renewals,omitempty"`
	// Exposed are keys that were on machines which have left the control plane.
	Exposed []Exposed `json:"exposed,omitempty"`
	Sealed  []byte    `json:"sealed"` // keys, encrypted with age

	Keys Keys `json:"-"` // what Sealed holds

	sealedOf [sha256.Size]byte // what Sealed was made of
}

// Renewal requests that certificates which were issued before Since are renewed.
type Renewal struct {
	Names    []string  `json:"names"`              // as run.CertificateName returns them, or "all"
	Machines []string  `json:"machines,omitempty"` // addresses or names; empty means all machines
	Since    time.Time `json:"since"`
}

// Fixed is what running pods, services and certificates go by, and what no machine can change by itself.
type Fixed struct {
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	Domain       string         `json:"domain,omitempty"`
	// Settings are those of daemons that stay, as controllers.node_cidr_mask_size.
	Settings map[string]string `json:"settings,omitempty"`
}

// FixedOf is what a configuration says of it.
func FixedOf(c *config.Cluster) Fixed {
	return Fixed{PodCIDRs: c.PodCIDRs, ServiceCIDRs: c.ServiceCIDRs, Domain: c.Domain, Settings: c.FixedSettings()}
}

// Machine is a machine as last applied.
type Machine struct {
	Machine config.Machine `json:"machine"`
	Joined  bool           `json:"joined"` // everything was applied once
	// Identity is the installation's that was applied to, as host.Facts has it.
	Identity string `json:"identity,omitempty"`
	// Origin is the identity that its provider ID is made of, where that is not Identity: new host keys make no other
	// machine of it.
	Origin string `json:"origin,omitempty"`
	// Cordoned is that a run has cordoned the node, and has to take that back.
	Cordoned bool `json:"cordoned,omitempty"`
	// Issued are the certificates that the machine has got, by where they lie, to be
	// revoked when it goes.
	Issued map[string]certs.Revoked `json:"issued,omitempty"`
	// Release is what has held there, nil when nothing is known; Failed is an update that was rolled back since.
	Release *host.Release `json:"release,omitempty"`
	Failed  *FailedUpdate `json:"failed,omitempty"`
}

// FailedUpdate is an update of a machine that was rolled back.
type FailedUpdate struct {
	To  host.Release `json:"to"`
	At  time.Time    `json:"at"`
	Why string       `json:"why"`
}

// mostReleases is how many releases are remembered.
const mostReleases = 50

// Had writes down that the cluster has had a release: where versions have no order, what came first is older.
func (s *State) Had(r host.Release) {
	if slices.ContainsFunc(s.Releases, func(h host.Release) bool { return h.Build == r.Build }) {
		return
	}
	s.Releases = append(s.Releases, r)
	s.Releases = s.Releases[max(0, len(s.Releases)-mostReleases):]
}

// Member is how an etcd member first started; what it was told then it is told ever after. One that joins a store
// learns from that store beside whom it begins, and InitialCluster is empty; earlier releases wrote it down when they
// planned.
type Member struct {
	InitialCluster string `json:"initialCluster,omitempty"`
	Existing       bool   `json:"existing"`
}

// Restore is a restore of the store.
type Restore struct {
	Snapshot string    `json:"snapshot"` // what the store is made of, as people call it
	Machine  string    `json:"machine"`  // name of the one whose member is made first
	Began    time.Time `json:"began"`
	// Laid is that the first member has its data: what is left to do, apply does as well.
	Laid bool `json:"laid,omitempty"`
}

// Object is an API object that was applied.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Address    string `json:"address"`
	// Protected is that it may not be removed, whatever is declared, until it has been applied without.
	Protected bool `json:"protected,omitempty"`
}

// FullName is namespace/name, or the name alone.
func (o Object) FullName() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Same reports whether two are the same object, whichever blocks they are of: kinds keep their objects over versions.
func (o Object) Same(other Object) bool { return o.Identity() == other.Identity() }

// Identity is what Same compares, with the group alone as the version.
func (o Object) Identity() Object {
	return Object{APIVersion: group(o.APIVersion), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

func group(apiVersion string) string {
	name, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return ""
	}
	return name
}

// Keys are the secrets of the cluster.
type Keys struct {
	CAs            map[string][]byte `json:"cas"` // private keys, PEM
	ServiceAccount []byte            `json:"serviceAccount"`
	ServicePublic  []byte            `json:"servicePublic"`
	Encryption     Encryption        `json:"encryption,omitzero"` // of values in the store
	// private keys of those that will sign, by the name of their rotation
	Next map[string][]byte `json:"next,omitempty"`
	// Secrets are the sensitive values that may be in what was applied: a change that takes one away
	// must not show it.
	Secrets []string `json:"secrets,omitempty"`
}

// RevocationLists returns what is revoked, for each authority with clients: DER, signed by whoever signs now, which
// everybody trusts by then. It has what a former authority has signed, too: serial numbers are random, so that none is
// taken for another's.
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

// Revoke remembers that certificates are not to be trusted any more.
func (s *State) Revoke(list ...certs.Revoked) {
	for _, r := range list {
		if !slices.ContainsFunc(
			s.Revoked,
			func(have certs.Revoked) bool { return have.CA == r.CA && have.Serial == r.Serial },
		) {
			s.Revoked = append(s.Revoked, r)
		}
	}
}

// New returns the state of a cluster that is not there yet.
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

// NewToken has members that are made from now on be of a store of their own.
func (s *State) NewToken() error {
	token := make([]byte, 8)
	if _, err := rand.Read(token); err != nil {
		return err
	}
	s.Token = hex.EncodeToString(token)
	return nil
}

// Store keeps the state in a folder.
type Store struct {
	Dir    string
	Sealer Sealer
	Lock   *Lock // of who writes; nil for who only reads, and where nobody else can be
}

// Held is ErrLost when another run has taken the lock.
func (s Store) Held() error {
	if s.Lock == nil {
		return nil
	}
	return s.Lock.Held()
}

// Read returns the state, nil when there is none.
func (s Store) Read() (*State, error) {
	text, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	var state State
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf(
			"read the state %s: %w. The last ten are in %s; with none, clusterctl state rebuild makes it anew",
			s.path(),
			err,
			filepath.Join(s.Dir, versionsFolder),
		)
	}
	if state.Version != formatVersion {
		return nil, fmt.Errorf(
			"the state %s has format %d, this clusterctl knows format %d",
			s.path(),
			state.Version,
			formatVersion,
		)
	}
	plain, err := s.Sealer.Open(state.Sealed)
	if err != nil {
		return nil, fmt.Errorf(
			"open the keys in %s: %w. Bring that key here; if it is lost, clusterctl state rebuild makes the state "+
				"anew",
			s.path(),
			err,
		)
	}
	if err := json.Unmarshal(plain, &state.Keys); err != nil {
		return nil, fmt.Errorf("read the keys in %s: %w", s.path(), err)
	}
	state.complete()
	return &state, nil
}

// complete makes what a file has left out, or has as null, as empty as it says.
func (s *State) complete() {
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

// Write keeps the state. A reader sees the old or the new one. Who has lost the lock writes nothing.
func (s Store) Write(state *State) error {
	if err := s.Held(); err != nil {
		return err
	}
	plain, err := json.Marshal(state.Keys)
	if err != nil {
		return err
	}
	if as := s.Sealer.of(plain); as != state.sealedOf { // keys change less often than what is done to machines
		if state.Sealed, err = s.Sealer.Seal(plain); err != nil {
			return fmt.Errorf("seal the keys: %w", err)
		}
		state.sealedOf = as
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

// Remove forgets the state of a cluster that is no more.
func (s Store) Remove() error {
	if err := s.Held(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.Dir, handedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // its authority is no more
	}
	return os.Remove(s.path())
}

func (s Store) path() string { return filepath.Join(s.Dir, "state.json") }
