package ssh

import (
	"fmt"
	"slices"
	"strings"
)

func wordSet(names string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

// wholeLineOptions are the options whose value is the rest of the line, including quotes.
var wholeLineOptions = wordSet("proxycommand localcommand remotecommand knownhostscommand")

// supportedOptions are the options that are implemented.
var supportedOptions = wordSet(`hostname user port proxyjump proxycommand identityfile certificatefile identitiesonly identityagent
	userknownhostsfile globalknownhostsfile hostkeyalias hostkeyalgorithms stricthostkeychecking hashknownhosts revokedhostkeys
	connecttimeout serveraliveinterval serveralivecountmax addressfamily bindaddress ciphers macs kexalgorithms
	casignaturealgorithms pubkeyauthentication tag`)

// unsafeOptions are options that are not implemented and that change which hosts are trusted or where a connection
// goes. The values are those that have no effect and are accepted.
var unsafeOptions = map[string][]string{
	"canonicalizehostname":             {"no", "none", "false"},
	"knownhostscommand":                {"none"},
	"pkcs11provider":                   {"none"},
	"proxyusefdpass":                   {"no", "false"},
	"verifyhostkeydns":                 {"no", "false", "ask"},
	"nohostauthenticationforlocalhost": {"no", "false"},
	"checkhostip":                      {"no", "false"},
	"bindinterface":                    {},
}

// ignoredOptions are options that have no effect on a run: they change neither which hosts are trusted nor where a
// connection goes.
var ignoredOptions = wordSet(`addkeystoagent afstokenpassing batchmode canonicaldomains canonicalizefallbacklocal
	canonicalizemaxdots canonicalizepermittedcnames challengeresponseauthentication channeltimeout cipher clearallforwardings compression compressionlevel
	connectionattempts controlmaster controlpath controlpersist dynamicforward enableescapecommandline enablesshkeysign escapechar exitonforwardfailure
	fallbacktorsh fingerprinthash forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted gatewayports globalknownhostsfile2
	gssapiauthentication gssapiclientidentity gssapidelegatecredentials gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity
	gssapitrustdns hostbasedacceptedalgorithms hostbasedauthentication hostbasedkeytypes ipqos kbdinteractiveauthentication
	kbdinteractivedevices keepalive localcommand localforward loglevel logverbose numberofpasswordprompts
	obscurekeystroketiming passwordauthentication permitlocalcommand permitremoteopen preferredauthentications protocol pubkeyacceptedalgorithms
	rekeylimit remotecommand remoteforward requesttty requiredrsasize rhostsauthentication rhostsrsaauthentication rsaauthentication
	securitykeyprovider sendenv sessiontype setenv skeyauthentication stdinnull streamlocalbindmask streamlocalbindunlink syslogfacility tcpkeepalive
	tisauthentication tunnel tunneldevice updatehostkeys usekeychain useprivilegedport userknownhostsfile2 useroaming usersh visualhostkey
	warnweakcrypto xauthlocation`)

// renamedOptions maps older names of options to the present ones.
var renamedOptions = map[string]string{
	"identityfile2": "identityfile", "dsaauthentication": "pubkeyauthentication",
	"pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms",
	"smartcarddevice":        "pkcs11provider",
}

func rejectUnsafe(key string, s setting) error {
	quiet, ok := unsafeOptions[key]
	if !ok || slices.Contains(quiet, strings.ToLower(s.firstWord())) {
		return nil
	}
	return fmt.Errorf("%s: %s %s is not carried out, and leaving it out would connect elsewhere or trust others than "+
		"ssh does. Say what you mean in the machine's ssh block, or take it out for this host", s.position, key,
		strings.Join(s.words, " "))
}

// boolean returns the value of a boolean option, or otherwise if it is not set.
func (r *configReader) boolean(key string, otherwise bool) (bool, error) {
	s, ok := r.values[key]
	if !ok {
		return otherwise, nil
	}
	switch strings.ToLower(s.firstWord()) {
	case "yes", "true":
		return true, nil
	case "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("%s: %s %q is neither yes nor no", s.position, key, s.firstWord())
}
