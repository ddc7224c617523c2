//! Inbound webhooks: is this request really from the provider, and which intended effects does it carry?
//!
//! Everything here works on bytes that were already received; nothing is stored or answered. Verification is
//! over the raw body, before anything is parsed. One file per provider: a new one is a file that implements
//! `Rules`, its `mod` line, and its line in the `registry!` below. Facts on providers: `webhooks/README.md`.

mod aside;
mod body;
mod calendly;
mod contact_form_7;
mod default_key;
mod environment;
mod field;
mod fillout;
mod formstack;
mod github;
mod google_forms;
mod gravity_forms;
mod hmac;
mod hubspot;
mod jotform;
mod linkedin;
mod machine_mail;
mod mailgun;
mod make;
mod meta;
mod multipart;
mod paperform;
mod polled;
mod reading;
mod request;
mod rules;
mod salesforce;
mod sender;
mod sendgrid;
mod sendgrid_inbound;
mod shopify;
mod signature;
mod slack;
mod soap;
mod standard_webhooks;
mod stripe;
mod tally;
mod timed;
mod trust;
mod twilio;
mod typeform;
mod webflow;
mod woocommerce;
mod wpforms;
mod zapier;

use std::fmt;

pub use self::aside::{Aside, SetAside};
pub use self::environment::{EventEnvironment, as_text};
pub use self::field::{FieldPath, FieldPathError, NoIdentity};
pub use self::hmac::{HmacScheme, HmacSchemeError};
pub use self::machine_mail::{MachineMail, MailPlaces};
pub use self::reading::{Batch, Event, EventRules, Explained, FieldSeen, Reading, polled};
pub use self::request::{Headers, Request};
pub use self::rules::Answer;
pub use self::sender::{Sender, SenderCount, SenderLimit};
pub use self::signature::{
    Algorithm, Encoding, SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_MAX, SecretError, SignatureError,
};
pub use self::trust::{Kept, SecretPlace, SecretPlaceError, Trust};

macro_rules! registry {
    ($($(#[$doc:meta])* $variant:ident = $name:literal => $rules:expr,)*) => {
        /// Who sends to a source, and therefore how its requests are signed and named.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Provider {
            $($(#[$doc])* $variant,)*
            /// Anybody who signs the raw body with an HMAC, as described by the scheme.
            Hmac(HmacScheme),
            /// Nobody: oncegate itself asks for them. No configuration names it.
            Polled,
        }

        impl Provider {
            /// The names configuration can use.
            pub const NAMES: &[&str] = &[$($name,)* hmac::NAME];

            /// The provider's name in configuration, in keys and in lists.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Hmac(_) => hmac::NAME,
                    Self::Polled => polled::NAME,
                }
            }

            /// The provider of that name. `scheme` belongs to `hmac`, which cannot be without one.
            ///
            /// # Errors
            /// There is no such provider, or the scheme is missing or out of place.
            pub fn from_name(name: &str, scheme: Option<HmacScheme>) -> Result<Self, ProviderError> {
                match (name, scheme) {
                    $(($name, None) => Ok(Self::$variant),)*
                    (hmac::NAME, Some(scheme)) => Ok(Self::Hmac(scheme)),
                    (hmac::NAME, None) => Err(ProviderError::SchemeMissing),
                    (name, Some(_)) if Self::NAMES.contains(&name) => {
                        Err(ProviderError::SchemeUnused { name: name.to_owned() })
                    }
                    (name, _) => Err(ProviderError::Unknown { name: name.to_owned() }),
                }
            }

            fn rules(&self) -> &dyn rules::Rules {
                match self {
                    $(Self::$variant => &$rules,)*
                    Self::Hmac(scheme) => scheme,
                    Self::Polled => &polled::Polled,
                }
            }
        }
    };
}

registry! {
    /// Typeform forms.
    Typeform = "typeform" => typeform::Typeform,
    /// Tally forms.
    Tally = "tally" => tally::Tally,
    /// Google forms, by a script that signs (docs/providers/google-forms.md).
    GoogleForms = "google_forms" => google_forms::GoogleForms,
    /// Jotform forms.
    Jotform = "jotform" => jotform::Jotform,
    /// Gravity Forms, a plugin of WordPress.
    GravityForms = "gravity_forms" => gravity_forms::GravityForms,
    /// WPForms, a plugin of WordPress.
    WpForms = "wpforms" => wpforms::WpForms,
    /// Contact Form 7, a plugin of WordPress, with another that sends.
    ContactForm7 = "contact_form_7" => contact_form_7::ContactForm7,
    /// Fillout forms.
    Fillout = "fillout" => fillout::Fillout,
    /// Paperform forms.
    Paperform = "paperform" => paperform::Paperform,
    /// Webflow forms, of webhooks that were made by an app or with a site token.
    Webflow = "webflow" => webflow::Webflow,
    /// Formstack forms.
    Formstack = "formstack" => formstack::Formstack,
    /// HubSpot: what an app subscribed to.
    Hubspot = "hubspot" => hubspot::Hubspot,
    /// HubSpot: what a workflow sends.
    HubspotWorkflow = "hubspot_workflow" => hubspot::HubspotWorkflow,
    /// Salesforce: outbound messages.
    Salesforce = "salesforce" => salesforce::Salesforce,
    /// Meta lead ads.
    Meta = "meta" => meta::Meta,
    /// LinkedIn lead generation.
    Linkedin = "linkedin" => linkedin::Linkedin,
    /// Stripe payments.
    Stripe = "stripe" => stripe::Stripe,
    /// Shopify shops.
    Shopify = "shopify" => shopify::Shopify,
    /// WooCommerce shops.
    WooCommerce = "woocommerce" => woocommerce::WooCommerce,
    /// Calendly bookings.
    Calendly = "calendly" => calendly::Calendly,
    /// GitHub repositories, organisations and apps.
    Github = "github" => github::Github,
    /// Slack: events, slash commands, buttons and dialogs.
    Slack = "slack" => slack::Slack,
    /// Twilio: messages, calls and event streams.
    Twilio = "twilio" => twilio::Twilio,
    /// SendGrid: what became of mails.
    Sendgrid = "sendgrid" => sendgrid::Sendgrid,
    /// SendGrid: mails that came in.
    SendgridInbound = "sendgrid_inbound" => sendgrid_inbound::SendgridInbound,
    /// Mailgun: what became of mails.
    Mailgun = "mailgun" => mailgun::Mailgun,
    /// Zapier: a step "Webhooks by Zapier".
    Zapier = "zapier" => zapier::Zapier,
    /// Make: its HTTP module, and its own event subscriptions.
    Make = "make" => make::Make,
    /// Everybody who follows the Standard Webhooks specification: Svix and its customers, Make, …
    StandardWebhooks = "standard_webhooks" => standard_webhooks::StandardWebhooks,
}

/// Why a source's provider is refused when the configuration is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No provider of that name.
    #[error("there is no provider `{name}`; known are {}; a provider not in this list may fit `hmac`", Provider::NAMES.join(", "))]
    Unknown {
        /// The name as written.
        name: String,
    },
    /// `hmac` without its scheme.
    #[error("provider `hmac` needs to know what is signed where; add e.g. `hmac: {{ header: X-Signature }}`")]
    SchemeMissing,
    /// A scheme next to a provider that has its own.
    #[error("provider `{name}` has its own signature scheme; remove `hmac:` or set the provider to `hmac`")]
    SchemeUnused {
        /// The provider's name.
        name: String,
    },
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
