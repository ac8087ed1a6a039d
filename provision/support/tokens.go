package support

import (
	"regexp"
	"slices"
	"strings"
)

// tokenPattern matches tokens of well-known services, which have a fixed prefix.
var tokenPattern = lazyPattern(`\b(?:` + strings.Join([]string{
	`gh[opusr]_[A-Za-z0-9]{20,}`, `github_pat_[A-Za-z0-9_]{20,}`, // GitHub
	`gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|agent|oas|imt|ffct)-[A-Za-z0-9_.-]{16,}`,      // GitLab
	`(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}`,                                             // AWS
	`AIza[0-9A-Za-z_-]{35}`, `GOCSPX-[A-Za-z0-9_-]{20,}`, `ya29\.[0-9A-Za-z_.-]{20,}`, // Google
	`xox[a-z]-[A-Za-z0-9-]{10,}`, `xapp-[A-Za-z0-9-]{10,}`, // Slack
	`(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}`, `whsec_[A-Za-z0-9+/=]{16,}`, // Stripe
	`sk-[A-Za-z0-9_-]{20,}`,                             // OpenAI, Anthropic
	`hv[sbr]\.[A-Za-z0-9_-]{20,}`, `s\.[A-Za-z0-9]{24}`, // Vault
	`npm_[A-Za-z0-9]{30,}`, `pypi-[A-Za-z0-9_-]{30,}`, `dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}`, `rubygems_[0-9a-f]{40,}`,
	`crates_[A-Za-z0-9]{30,}`,
	`SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`, `key-[0-9a-f]{32}`, // mail
	`do[opr]_v1_[0-9a-f]{40,}`, `tskey-[a-z]+-[A-Za-z0-9-]{10,}`, `dapi[0-9a-f]{32}`,
	`shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}`, `gls[ac]_[A-Za-z0-9_]{20,}`, `glc_[A-Za-z0-9+/=]{20,}`,
	`sntr[a-z]s?_[A-Za-z0-9+/=_-]{20,}`, `NRAK-[A-Z0-9]{20,}`, `dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9_.]{20,}`,
	`lin_api_[A-Za-z0-9]{20,}`, `ATATT3[A-Za-z0-9_=-]{20,}`, `hf_[A-Za-z0-9]{20,}`,
	`pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{16,}`, `[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{30,}`,
	`ops_eyJ[A-Za-z0-9+/=_-]{20,}`, `xkeysib-[0-9a-f]{40,}[A-Za-z0-9-]*`,
	`[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}`, // Telegram
}, "|") + `)`)

// hashPatterns match password hashes, as in /etc/shadow and htpasswd, and webhook URLs whose path is the secret.
var hashPatterns = []func() *regexp.Regexp{
	lazyPattern(`\$(?:1|5|6|7|y|gy|apr1|2[abxy]|argon2(?:id?|d)|pbkdf2[a-z0-9-]*|scrypt)\$[./A-Za-z0-9$=,+-]{20,}`),
	lazyPattern(`hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]+`),
	lazyPattern(`discord(?:app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]+`),
}

// linkPattern matches a URL up to white space or a quote.
var linkPattern = lazyPattern(`\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s"'<>` + "`" + `\\]+)`)

// portAndPath matches the text after a colon if it is the port of a host, and not a password after a user.
var portAndPath = lazyPattern(`^[0-9]{1,5}(?:[/?#]|$)`)

// redactLinks hides the passwords of URLs, even if their special characters are not escaped, and user names that are
// tokens.
func redactLinks(text string) string {
	return linkPattern().ReplaceAllStringFunc(text, func(found string) string {
		parts := linkPattern().FindStringSubmatch(found)
		scheme, rest := parts[1], parts[2]
		at := strings.LastIndexByte(rest, '@')
		if at < 0 {
			return found
		}
		user, password, ok := strings.Cut(rest[:at], ":")
		switch {
		case ok && !strings.ContainsAny(user, "/?#") && password != "" && !portAndPath().MatchString(password) &&
			password != hiddenText:
			return scheme + user + ":" + hiddenText + rest[at:]
		case !ok && len(user) >= 20 && !strings.ContainsAny(user, "/?#.@"):
			return scheme + hiddenText + rest[at:]
		}
		return found
	})
}

// passwordCommands match command lines of programs that take a password in a flag. The first group is the text before
// the password, the second one the password.
var passwordCommands = []func() *regexp.Regexp{
	lazyPattern(`(\b(?:mysql|mariadb)[a-z_-]*\b[^\n]*?[\s"']-p)([^\s"',\]]+)`),
	lazyPattern(`(\bsshpass\b[^\n]*?[\s"']-p["',\s]*)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:redis-cli|valkey-cli|keydb-cli)\b[^\n]*?[\s"']-a["',\s]+)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:7z[ar]?|7zz|rar|unrar)\b[^\n]*?[\s"']-p)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:zip|unzip)\b[^\n]*?[\s"']-P["',\s]*)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:curl|wget|http|https|xh)\b[^\n]*?[\s"'](?:-u|-U|-a|--user|--proxy-user|--auth)["',=\s]*` +
		`[^\s"':,=]+:)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:ldapsearch|ldapmodify|ldapadd|ldapwhoami|ldapdelete)\b[^\n]*?[\s"']-w["',\s]*)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:mongosh?|mongodump|mongorestore|mongoexport|mongoimport)\b[^\n]*?[\s"']-p["',\s]+)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:sqlcmd|bcp)\b[^\n]*?[\s"']-P["',\s]*)([^\s"',\]]+)`),
	lazyPattern(`(\b(?:docker|podman|nerdctl|crane|skopeo|helm|oras)\b[^\n]*?\blogin\b[^\n]*?[\s"']-p["',\s]+)` +
		`([^\s"',\]]+)`),
}

// listItemPattern matches an element of a YAML or JSON list that has the form -pPASSWORD.
var listItemPattern = lazyPattern(`((?m:^[ \t]*-[ \t]+["']?)|[\[,][ \t]*["'])(-p)([^\s"'=,\]-][^\s"'=,\]]*)`)

// knownPFlags are known flags with one dash that begin with -p, without the -p, such as "ort" for -port.
var knownPFlags = []string{
	"ackage", "age", "arallel", "arallelism", "arse", "artition", "artitions", "ath", "aths", "attern", "eer", "eers",
	"id", "idfile", "ing", "ipe", "latform", "lugin", "lugins", "olicy", "oll", "ool",
	"ort", "orts", "pprof", "pof", "prof", "prefix", "refix", "reserve", "retty", "rint", "riority", "rivate",
	"rivileged", "rod", "rofile", "rofiles", "rogress", "roject", "rometheus", "romote", "rotocol", "rovider",
	"roxy", "rune", "s",
	"ublic", "ublish", "ull", "ush",
}

// isFlagOfP reports whether the text after -p is not a password: it completes another flag, or is a number, an address
// or a port mapping.
func isFlagOfP(rest string) bool {
	return slices.Contains(knownPFlags, rest) || strings.Trim(rest, "0123456789:./") == ""
}

func redactCommands(text string) string {
	for _, c := range passwordCommands {
		text = c().ReplaceAllStringFunc(text, func(found string) string {
			parts := c().FindStringSubmatch(found)
			if isHarmlessValue(parts[2]) || isFlagOfP(parts[2]) {
				return found
			}
			return parts[1] + hiddenText
		})
	}
	return listItemPattern().ReplaceAllStringFunc(text, func(found string) string {
		parts := listItemPattern().FindStringSubmatch(found)
		if isFlagOfP(parts[3]) || isHarmlessValue(parts[3]) {
			return found
		}
		return parts[1] + parts[2] + hiddenText
	})
}
