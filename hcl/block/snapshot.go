package block

import (
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
)

type snapshotBlock struct {
	Schedule  string   `hcl:"schedule,optional" doc:"Schedule, as five fields of cron in UTC, \"0 */6 * * *\", or @hourly, @daily, @weekly, @monthly."`
	Every     string   `hcl:"every,optional" doc:"Instead of schedule: the interval, as 12h or 30m; at least a minute. The first snapshot is taken a minute after the machine's start." default:"\"6h\""`
	Jitter    string   `hcl:"jitter,optional" doc:"Largest random delay on each machine, so that not all machines read their disks at the same time." default:"a tenth of the period, ten minutes at most"`
	Keep      *int     `hcl:"keep,optional" doc:"Number of snapshots that are kept on each machine, and in the bucket. Of snapshots that apply takes before risky changes, the same number is kept in addition. Snapshots of clusterctl etcd snapshot save stay until they are pruned." default:"5"`
	MaxAge    string   `hcl:"max_age,optional" doc:"How long snapshots are kept, as 168h. The newest always stays." default:"for ever"`
	Directory string   `hcl:"directory,optional" doc:"Folder on each machine with a member, preferably on a separate disk. Only root can read it." default:"\"/var/lib/etcd-snapshots\""`
	S3        *s3Block `hcl:"s3,block" doc:"A bucket that also receives the leader's snapshots."`
}

type s3Block struct {
	Endpoint  string `hcl:"endpoint" doc:"URL of the object store, as https://s3.eu-central-1.amazonaws.com."`
	Bucket    string `hcl:"bucket" doc:"Name of the bucket, which must exist."`
	Prefix    string `hcl:"prefix,optional" doc:"Folder in the bucket. Each cluster needs a folder of its own, because snapshots in it that are too old are removed." default:"the cluster's name"`
	Region    string `hcl:"region,optional" doc:"Region in the signatures of requests." default:"what the endpoint says"`
	PathStyle *bool  `hcl:"path_style,optional" doc:"Write the bucket into the path instead of the host name, as most stores except Amazon's need." default:"false"`
	CA        string `hcl:"ca,optional" doc:"PEM of the CAs of the endpoint's certificate, as in file(\"s3-ca.pem\")." default:"what the machine trusts"`
	AccessKey string `hcl:"access_key_id" doc:"Access key. It must allow to put, get, list and delete objects below the prefix."`
	SecretKey string `hcl:"secret_access_key" doc:"Secret of the access key. Use a sensitive variable, which an environment variable can set. On machines it is only in a file that only root can read."`
	Session   string `hcl:"session_token,optional" doc:"Session token of temporary credentials."`
}

func decodeSnapshot(x *Context, b *hcl.Block, raw *snapshotBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		return nil
	}
	at := func(name string) *hcl.Range { return deepRange(b, "etcd", "snapshot", name) }
	s := &config.Snapshot{Keep: valueOr(raw.Keep, 5), Directory: orDefault(raw.Directory, store.Directory)}
	c.Etcd.Snapshot = s
	duration := func(name, text string, minimum time.Duration) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil || d < minimum {
			diags = append(diags, newError(at(name), "Invalid time",
				"%s = %q: write hours, minutes and seconds, as 12h or 30m, %s at least.", name, text, minimum))
			return max(minimum, time.Minute)
		}
		return d
	}
	switch {
	case raw.Schedule != "" && raw.Every != "":
		diags = append(diags, newError(at("every"), "Two schedules", "Write schedule or every, not both."))
	case raw.Schedule != "":
		s.Schedule.Cron = raw.Schedule
		if err := s.Schedule.Check(); err != nil {
			diags = append(diags, newError(at("schedule"), "Invalid schedule",
				"%q is not a schedule: %s. Write five fields as cron has them, for instance \"0 */6 * * *\" for "+
					"every six hours.", raw.Schedule, err))
		}
	default:
		s.Schedule.Every = duration("every", orDefault(raw.Every, "6h"), time.Minute)
	}
	const maximum = 10 * time.Minute
	if s.Schedule.Jitter = min(s.Schedule.Every/10, maximum); raw.Jitter != "" {
		s.Schedule.Jitter = duration("jitter", raw.Jitter, 0)
	}
	if raw.MaxAge != "" {
		s.MaxAge = duration("max_age", raw.MaxAge, time.Hour)
	}
	if s.Keep < 1 {
		diags = append(diags, newError(at("keep"), "Too few snapshots", "keep = %d: at least one is kept.", s.Keep))
	}
	if !canHoldSnapshots(s.Directory) {
		diags = append(diags, newError(at("directory"), "Invalid directory",
			"%q: write an absolute path that is not below /etc, /home, /root, /run, /tmp, /usr or /var/lib/etcd.",
			s.Directory))
	}
	return append(diags, decodeS3(x, b, raw.S3, c)...)
}

// canHoldSnapshots reports whether a directory may hold snapshots: it is persistent, the unit may write to it, and it
// does not belong to the store.
func canHoldSnapshots(dir string) bool {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" {
		return false
	}
	for _, not := range []string{"/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/usr",
		"/var/tmp", "/var/lib/etcd"} {
		if dir == not || strings.HasPrefix(dir, not+"/") {
			return false
		}
	}
	return true
}

func decodeS3(x *Context, b *hcl.Block, raw *s3Block, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		return nil
	}
	at := func(name string) *hcl.Range { return deepRange(b, "etcd", "snapshot", "s3", name) }
	c.Etcd.Snapshot.S3 = &config.S3Bucket{
		Endpoint:  strings.TrimSuffix(raw.Endpoint, "/"),
		Bucket:    raw.Bucket,
		Prefix:    orDefault(strings.Trim(raw.Prefix, "/"), c.Name),
		Region:    raw.Region,
		PathStyle: valueOr(raw.PathStyle, false),
		CA:        raw.CA,
		AccessKey: raw.AccessKey,
		SecretKey: raw.SecretKey,
		Session:   raw.Session,
	}
	for _, secret := range []string{raw.SecretKey, raw.Session} {
		if secret != "" {
			x.Secrets = append(x.Secrets, secret)
		}
	}
	u, err := url.Parse(raw.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.User != nil {
		diags = append(diags, newError(at("endpoint"), "Invalid endpoint of an object store",
			"%q: write a URL without a path, as \"https://s3.example.com\".", raw.Endpoint))
	}
	if strings.ContainsAny(raw.Bucket, "/ ") || raw.Bucket == "" {
		diags = append(diags, newError(at("bucket"), "Invalid bucket",
			"%q is not the name of a bucket. The first part of names in the bucket goes into prefix.", raw.Bucket))
	}
	for _, credential := range [][2]string{{"access_key_id", raw.AccessKey}, {"secret_access_key", raw.SecretKey}} {
		if name := credential[0]; credential[1] == "" {
			diags = append(diags, newError(at(name), "No credentials for the object store",
				"%s is empty. Write %s = var.NAME with a sensitive variable, and set it by the environment "+
					"variable CLUSTERCTL_VAR_NAME.", name, name))
		}
	}
	if raw.CA != "" && !strings.Contains(raw.CA, "-----BEGIN CERTIFICATE-----") {
		diags = append(diags, newError(at("ca"), "No certificate",
			"ca has no PEM certificate in it. Write ca = file(\"s3-ca.pem\")."))
	}
	return diags
}

// deepRange returns the range of an attribute in nested blocks, or of the innermost of these blocks that exists.
func deepRange(b *hcl.Block, names ...string) *hcl.Range {
	at := b.DefRange.Ptr()
	body, _ := b.Body.(*hclsyntax.Body)
	for body != nil && len(names) > 0 {
		var inside *hclsyntax.Body
		for _, inner := range body.Blocks {
			if inner.Type == names[0] {
				r := inner.DefRange()
				at, inside = &r, inner.Body
				break
			}
		}
		if a, ok := body.Attributes[names[0]]; ok && len(names) == 1 {
			return a.SrcRange.Ptr()
		}
		body, names = inside, names[1:]
	}
	return at
}
