// Package store has what the program etcd is asked about the store, besides being a member of it, and what it answers;
// and the settings of snapshots. Provisioning asks, on machines, through their agents.
package store

import (
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// The program etcd, besides being a member, looks after members and keeps snapshots: `etcd store REQUEST` does what
// one Request says and prints an Answer, both as JSON. Nothing secret is in either.

// Operations of Request.
const (
	Status   = "status"    // Members
	Defrag   = "defrag"    // one member, Endpoint
	Compact  = "compact"   // to Revision, or all but the last Keep
	Disarm   = "disarm"    // all alarms
	Save     = "save"      // a snapshot is taken; Snapshots has it
	List     = "list"      // Snapshots
	Prune    = "prune"     // Snapshots are those that went
	Check    = "check"     // Snapshots has the one in File
	Fetch    = "fetch"     // the snapshot Name comes from the object store into File
	FromData = "from-data" // a snapshot of the data of a member that does not run, in Data, into File
	Restore  = "restore"   // a member's data is made of File
)

// Request is one thing to be done with the store, or with snapshots of it.
type Request struct {
	Op      string        `json:"op"`
	Timeout time.Duration `json:"timeout"`
	// Client is how members are reached; Endpoints are all members', with their names.
	Client    Client            `json:"client,omitzero"`
	Endpoints map[string]string `json:"endpoints,omitempty"`
	Endpoint  string            `json:"endpoint,omitempty"`

	Revision int64 `json:"revision,omitempty"`
	Keep     int64 `json:"keep,omitempty"`

	// Settings is the file with Settings; where it is not there, Directory says where snapshots are.
	Settings  string `json:"settings,omitempty"`
	Directory string `json:"directory,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Name      string `json:"name,omitempty"`
	File      string `json:"file,omitempty"`
	Data      string `json:"data,omitempty"` // a member's directory

	Member         string `json:"member,omitempty"` // name of the member that is made
	PeerURL        string `json:"peerURL,omitempty"`
	InitialCluster string `json:"initialCluster,omitempty"`
	Token          string `json:"token,omitempty"`
	RevisionBump   uint64 `json:"revisionBump,omitempty"`
}

// Client has the paths of what a client of the store shows and trusts.
type Client struct {
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Answer is what came of a Request.
type Answer struct {
	Members   []Member   `json:"members,omitempty"`
	Revision  int64      `json:"revision,omitempty"`
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	// what could not be done besides, and does not matter to what was asked
	Notes []string `json:"notes,omitempty"`
}

// Member is how a member is.
type Member struct {
	Name      string   `json:"name"`
	ID        string   `json:"id,omitempty"` // hexadecimal, as etcdctl shows it
	Cluster   string   `json:"cluster,omitempty"`
	Endpoint  string   `json:"endpoint"`
	Version   string   `json:"version,omitempty"`
	Leader    bool     `json:"leader"`
	Learner   bool     `json:"learner,omitempty"`
	Unstarted bool     `json:"unstarted,omitempty"` // the store waits for it, and it has never run
	Size      int64    `json:"size,omitempty"`      // bytes of the file
	Used      int64    `json:"used,omitempty"`      // bytes of that which defrag would leave
	Quota     int64    `json:"quota,omitempty"`
	Revision  int64    `json:"revision,omitempty"`
	Index     uint64   `json:"index,omitempty"` // of the log
	Alarms    []string `json:"alarms,omitempty"`
	Error     string   `json:"error,omitempty"` // why it does not answer
}

// Reasons of snapshots. Another one is what was to be done when it was taken.
const (
	Scheduled = "scheduled"
	Manual    = "manual" // kept until somebody prunes it
)

// Snapshot is what is known of a snapshot of the store; it lies beside it as NAME.json.
type Snapshot struct {
	Name     string    `json:"name"`
	Taken    time.Time `json:"taken"`
	Reason   string    `json:"reason"`
	Member   string    `json:"member,omitempty"`
	Cluster  string    `json:"cluster,omitempty"` // id of the store, hexadecimal
	Revision int64     `json:"revision"`
	Keys     int       `json:"keys"`
	Size     int64     `json:"size"`
	SHA256   string    `json:"sha256"` // of the whole file
	// Encryption has the keys that values are encrypted with, as PROVIDER:VERSION:NAME, and the resources of these
	// values.
	Encryption map[string][]string `json:"encryption,omitempty"`
	In         []string            `json:"in,omitempty"` // local, s3
}

// IsName reports whether a text can be a snapshot's name, which is that of files on machines and on the operator's
// computer: it stays in its folder.
func IsName(name string) bool {
	return name != "" && len(name) <= 200 && name[0] != '.' && filepath.IsLocal(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) })
}

// LastSnapshot is where a machine keeps how its last snapshots went.
const LastSnapshot = "/var/lib/clusterctl/etcd-snapshot.json"

// Outcome is the content of LastSnapshot.
type Outcome struct {
	Good     *Snapshot `json:"good,omitempty"` // the last one that was taken and checked
	Tried    time.Time `json:"tried"`
	Error    string    `json:"error,omitempty"` // why the last one came to nothing; empty when it did not
	Uploaded time.Time `json:"uploaded,omitzero"`
}

// Settings are where snapshots go and how long they stay. The file has the object store's credentials in it.
type Settings struct {
	Member    string        `json:"member"`
	Endpoint  string        `json:"endpoint"` // of this machine's member
	Client    Client        `json:"client"`
	Directory string        `json:"directory"`
	Keep      int           `json:"keep"`
	MaxAge    time.Duration `json:"maxAge,omitempty"` // zero: age does not matter
	S3        *S3           `json:"s3,omitempty"`
}

// Directory is where snapshots are when nothing else is declared, and KeepUndeclared how many of those that are taken
// before a change a machine keeps for which no snapshots are declared.
const (
	Directory      = "/var/lib/etcd-snapshots"
	KeepUndeclared = 5
)

// S3 is a bucket that snapshots go to.
type S3 struct {
	Endpoint  string `json:"endpoint"` // URL
	Bucket    string `json:"bucket"`
	Prefix    string `json:"prefix,omitempty"`
	Region    string `json:"region,omitempty"`
	PathStyle bool   `json:"pathStyle,omitempty"`
	CAFile    string `json:"caFile,omitempty"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	Session   string `json:"session,omitempty"`
}
