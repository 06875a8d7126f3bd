// A certified OpenID provider with people in every role. Arguments: port, issuer, redirect URI, client id, client secret.
// Whoever types a name of the list as login is that person; any password will do.

import Provider from "oidc-provider";

const [port, issuer, redirectUri, clientId, clientSecret] = process.argv.slice(2);

const PEOPLE = {
  vera: { groups: ["staff", "voice-viewers"] },
  alan: { groups: ["voice-agents"], preferred_username: "agent-7" },
  susan: { groups: ["voice-leads", "voice-viewers"], preferred_username: "lead-1" },
  adam: { groups: ["voice-admins"], preferred_username: "admin-1" },
  nora: { groups: ["staff"], preferred_username: "nora" },
  nina: { groups: ["voice-agents"] },
};

const provider = new Provider(issuer, {
  clients: [{ client_id: clientId, client_secret: clientSecret, redirect_uris: [redirectUri] }],
  claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  cookies: { keys: ["only for tests"] },
  features: { devInteractions: { enabled: true } },
  findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub, ...PEOPLE[sub] }) }),
  async loadExistingGrant(ctx) {
    const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
    grant.addOIDCScope("openid profile groups");
    await grant.save();
    return grant;
  },
});

provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
