package configs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// userAgentName is the name of the agent that WithUserAgent makes.
const userAgentName = "default"

var infoInUserAgent = regexp.MustCompile(`\+(https?://[^\s;,()]+)`)

// WithUserAgent gives a configuration without agents the one that --user-agent and --product-token say. Without a
// productToken the token is the user agent's first product; a user agent that begins with Mozilla names no crawler
// there, so it needs one. Agents from a file stand: a user agent of one of them changes nothing, another is refused.
func WithUserAgent(c *Config, userAgent, productToken string) error {
	for _, a := range c.Agents {
		if a.UserAgent == userAgent && (productToken == "" || strings.EqualFold(a.ProductToken, productToken)) {
			return nil
		}
	}
	if len(c.Agents) > 0 {
		return fmt.Errorf("--user-agent: agent %s is configured already with user_agent %s; change it there, or leave the flag out",
			c.Agents[0].Name, quote(c.Agents[0].UserAgent))
	}
	if userAgent == "" || userAgent == UserAgentPass {
		return errors.New(`--user-agent needs the name that sites see, such as "ExampleBot/1.0 (+https://bot.example/about)"`)
	}
	if productToken == "" {
		first, _, _ := strings.Cut(strings.TrimSpace(userAgent), " ")
		productToken, _, _ = strings.Cut(first, "/")
		if strings.EqualFold(productToken, "Mozilla") {
			return errors.New("--user-agent begins with Mozilla, which names no crawler: add --product-token, the name that robots.txt uses")
		}
	}
	a := Agent{Name: userAgentName, ProductToken: productToken, UserAgent: userAgent, FallbackTokens: []string{}, PublishKeys: []string{}, Purposes: []string{}}
	if m := infoInUserAgent.FindStringSubmatch(userAgent); m != nil && isWeb(m[1]) {
		a.InfoURL = m[1]
	}
	trial := *c
	trial.Agents = []Agent{a}
	v := &checker{c: &trial, src: &Sources{}}
	v.agents()
	if len(v.problems) > 0 {
		p := v.problems[0]
		flag := "--user-agent"
		if strings.HasSuffix(p.Key, "product_token") {
			flag = "--product-token"
		}
		return fmt.Errorf("%s: %s", flag, p.Text)
	}
	c.Agents = trial.Agents
	c.fillIn()
	return nil
}
