// Package store defines the requests for maintaining the store, and the answers to them. The program etcd carries them
// out. Provisioning sends the requests through the agents on the machines. The package also defines the settings of
// snapshots.
package store

import (
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// The program etcd is a member of the store. It also maintains members and snapshots: `etcd store REQUEST` carries out
// a Request and prints an Answer, both as JSON. Neither contains secrets.

// Operations of Request.
const (
	Status   = "status"    // returns Members
	Defrag   = "defrag"    // defragments the member at Endpoint
	Compact  = "compact"   // compacts to Revision, or to all but the last Keep revisions
	Disarm   = "disarm"    // disarms all alarms
	Save     = "save"      // takes a snapshot and returns it in Snapshots
	List     = "list"      // returns Snapshots
	Prune    = "prune"     // deletes old snapshots and returns them in Snapshots
	Check    = "check"     // checks the snapshot in File and returns it in Snapshots
	Fetch    = "fetch"     // downloads the snapshot Name from the object store to File
	FromData = "from-data" // creates a snapshot in File from Data, the data of a member that does not run
	Restore  = "restore"   // creates a member's data from File
)

// Request is one operation on the store or its snapshots.
type Request struct {
	Op      string        `json:"op"`
	Timeout time.Duration `json:"timeout"`
	// Client is used to connect to members. Endpoints maps the names of all members to their endpoints.
	Client    Client            `json:"client,omitzero"`
	Endpoints map[string]string `json:"endpoints,omitempty"`
	Endpoint  string            `json:"endpoint,omitempty"`

	Revision int64 `json:"revision,omitempty"`
	Keep     int64 `json:"keep,omitempty"`

	// Settings is the path of a file with Settings. If it does not exist, Directory is the directory of snapshots.
	Settings  string `json:"settings,omitempty"`
	Directory string `json:"directory,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Name      string `json:"name,omitempty"`
	File      string `json:"file,omitempty"`
	Data      string `json:"data,omitempty"` // a member's directory

	Member         string `json:"member,omitempty"` // name of the member to create
	PeerURL        string `json:"peerURL,omitempty"`
	InitialCluster string `json:"initialCluster,omitempty"`
	Token          string `json:"token,omitempty"`
	RevisionBump   uint64 `json:"revisionBump,omitempty"`
}

// Client holds the paths of the client's credentials and of the trusted CA.
type Client struct {
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Answer is the result of a Request.
type Answer struct {
	Members   []Member   `json:"members,omitempty"`
	Revision  int64      `json:"revision,omitempty"`
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	// Notes are problems that do not affect the result.
	Notes []string `json:"notes,omitempty"`
}

// Member is the state of a member.
type Member struct {
	Name      string   `json:"name"`
	ID        string   `json:"id,omitempty"` // hexadecimal, as etcdctl shows it
	Cluster   string   `json:"cluster,omitempty"`
	Endpoint  string   `json:"endpoint"`
	Version   string   `json:"version,omitempty"`
	Leader    bool     `json:"leader"`
	Learner   bool     `json:"learner,omitempty"`
	Unstarted bool     `json:"unstarted,omitempty"` // it was added to the store and has never run
	Size      int64    `json:"size,omitempty"`      // size of the file in bytes
	Used      int64    `json:"used,omitempty"`      // bytes that would remain after a defragmentation
	Quota     int64    `json:"quota,omitempty"`
	Revision  int64    `json:"revision,omitempty"`
	Index     uint64   `json:"index,omitempty"` // index in the log
	Alarms    []string `json:"alarms,omitempty"`
	Error     string   `json:"error,omitempty"` // why it does not answer
}

// Reasons of snapshots. Any other reason is the change before which the snapshot was taken.
const (
	Scheduled = "scheduled"
	Manual    = "manual" // retained until a user deletes it
)

// Snapshot describes a snapshot of the store. It is stored beside the snapshot as NAME.json.
type Snapshot struct {
	Name     string    `json:"name"`
	Taken    time.Time `json:"taken"`
	Reason   string    `json:"reason"`
	Member   string    `json:"member,omitempty"`
	Cluster  string    `json:"cluster,omitempty"` // id of the store in hexadecimal
	Revision int64     `json:"revision"`
	Keys     int       `json:"keys"`
	Size     int64     `json:"size"`
	SHA256   string    `json:"sha256"` // digest of the whole file
	// Encryption maps the encryption keys, as PROVIDER:VERSION:NAME, to the resources whose values they encrypt.
	Encryption map[string][]string `json:"encryption,omitempty"`
	In         []string            `json:"in,omitempty"` // where it is stored: local, s3
}

// IsName reports whether a text is a valid name of a snapshot. The name is used for files on machines and on the
// operator's computer, and must not lead out of their directory.
func IsName(name string) bool {
	return name != "" && len(name) <= 200 && name[0] != '.' && filepath.IsLocal(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) })
}

// LastSnapshot is the file on a machine with the results of its last snapshots.
const LastSnapshot = "/var/lib/clusterctl/etcd-snapshot.json"

// Outcome is the content of LastSnapshot.
type Outcome struct {
	Good     *Snapshot `json:"good,omitempty"` // the last snapshot that was taken and checked
	Tried    time.Time `json:"tried"`
	Error    string    `json:"error,omitempty"` // why the last attempt failed; empty if it succeeded
	Uploaded time.Time `json:"uploaded,omitzero"`
}

// Settings configures where snapshots are stored and how long. The file contains the credentials for the object store.
type Settings struct {
	Member    string        `json:"member"`
	Endpoint  string        `json:"endpoint"` // of this machine's member
	Client    Client        `json:"client"`
	Directory string        `json:"directory"`
	Keep      int           `json:"keep"`
	MaxAge    time.Duration `json:"maxAge,omitempty"` // zero means no limit
	S3        *S3Bucket     `json:"s3,omitempty"`
}

// Directory is the default directory of snapshots. KeepUndeclared applies if a configuration declares no snapshots. It
// is how many of the snapshots that were taken before changes a machine retains.
const (
	Directory      = "/var/lib/etcd-snapshots"
	KeepUndeclared = 5
)

// S3Bucket is a bucket for snapshots.
type S3Bucket struct {
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
